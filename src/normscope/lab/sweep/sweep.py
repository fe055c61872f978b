"""Many runs as one experiment: cells in parallel, each result kept as soon as it is there.

    OUT/sweep.db          one artifact of kind "cell" per finished cell (see docs/json.md)
    OUT/cells/ID/         the run of the cell: run.db, config.json, checkpoints if they are kept
    OUT/data/             the tokenised text, mapped into memory by every process
    OUT/.shared-…         while it runs: shows a worker whether it sees this folder

A cell that diverges or fails is a result too. If a process dies, its cell continues from the saved
state; finished cells are not run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope._version import __version__
from normscope.engines.engine import SupportsSubmit, as_standard_future, check_engine, open_engine
from normscope.engines.node_check import check_nodes
from normscope.engines.prepared_call import PreparedCall
from normscope.errors import NodeProblem, TrainingError, UsageError
from normscope.lab.config import TrainConfig, completed, flatten
from normscope.lab.data.open_data import complete_config, open_data
from normscope.lab.model import SEES_THE_FUTURE
from normscope.lab.sweep.cell_folders import CellReturn, marked, write_files
from normscope.lab.sweep.cell_needs import cell_needs, in_callers_folder
from normscope.lab.sweep.cells import SEED_RULES, Cell, make_cells
from normscope.lab.sweep.outcome import CellJob, cell_document, run_cell_anywhere
from normscope.lab.training.checkpointing import check_folder
from normscope.lab.training.folder_use import using_folder
from normscope.network.places.programs import refuse_while_importing
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.run import Run
from normscope.table import Table, Tabular

CELL_ARTIFACT = "cell"


@dataclass(frozen=True)
class SweepConfig:
    """What to sweep: a `base` config and, in `cells`, the fields that each cell changes.

    `seeds` are the `same` for all cells, or each cell has its `own`. With `retry`, failed cells are
    run again; diverged ones would diverge again.

    >>> ns.SweepConfig(ns.TrainConfig(steps=100), [{"lr": 1e-3}, {"lr": 1e-2, "norm": "post"}]).seeds
    'same'
    """

    base: TrainConfig = field(default_factory=TrainConfig)
    cells: Sequence[Mapping[str, Any]] = field(default=(), hash=False)
    seeds: str = "same"
    retry: bool = False

    def __post_init__(self) -> None:
        if self.seeds not in SEED_RULES:
            raise UsageError(f"seeds must be {' or '.join(SEED_RULES)}, not {self.seeds!r}")
        check_kind("base", self.base, TrainConfig)
        check_kind("retry", self.retry, bool, "True or False")
        listed = isinstance(self.cells, Sequence) and not isinstance(self.cells, str)
        if not listed or not all(isinstance(cell, Mapping) for cell in self.cells):
            raise UsageError(f"cells must be a list of changes such as [{{'lr': 1e-3}}]; got {self.cells!r}")


@dataclass(frozen=True, repr=False)
class SweepResult(Tabular):
    """The result of `sweep`: every finished cell as its JSON document (see docs/json.md).

    `out` is the folder of the sweep, `run` its run file. `remarks` are sentences about data and
    models. The table has one row per cell.

    >>> cells = [{"changes": {"lr": 0.1}, "status": "done", "norm_end": 9.0}]
    >>> ns.SweepResult("grid", "grid/sweep.db", cells).counts
    {'done': 1}
    """

    out: Path
    run: Path
    cells: Sequence[Mapping[str, Any]] = field(hash=False)
    remarks: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells that are done, diverged or failed."""
        return dict(Counter(cell["status"] for cell in self.cells))

    @property
    def table(self) -> Table:
        """One row per cell: its changes, status, norms and loss."""
        names = list(dict.fromkeys(name for cell in self.cells for name in cell["changes"]))
        columns: dict[str, list[Any]] = {n: [cell["changes"].get(n) for cell in self.cells] for n in names}
        for name in ("status", "norm_start", "norm_end", "body_norm_start", "body_norm_end", "loss"):
            columns[name] = [cell.get(name) for cell in self.cells]
        return Table(columns)

    @property
    def messages(self) -> Sequence[str]:
        """Summary that a notebook shows above the table."""
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items())
        scopes = "body_norm: the body; norm: all parameters, with embeddings and head"
        found = [cell["saturation_error"] for cell in self.cells if cell.get("saturation_error")]
        missing = [f"in {len(found)} of them, some saturation is missing: {found[0]}"] if found else []
        first = f"{len(self.cells)} cells: {counts}"
        return (first, scopes, *missing, *self.remarks, f"run file: {self.run}")


def sweep(
    config: SweepConfig,
    output: str | Path,
    *,
    engine: SupportsSubmit | str | None = None,
    progress: Progress = silent,
) -> SweepResult:
    """Run every cell of `config` that has no result yet, and return all results in the folder `output`.

    `engine` is a name (`processes:4`, `ray`, `ray://head:10001`, `dask:scheduler:8786`), a
    `concurrent.futures.Executor`, or anything that submits like one; an executor is not shut down. The
    default is one local process per core. The nodes of a cluster are checked before anything starts. Where
    `output` is not shared with a node, files come back through the engine. `progress` is called with (cells
    done, cells in all, note).

    >>> import normscope as ns, tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> config = ns.SweepConfig(ns.TrainConfig(steps=2, batch=2), [{"lr": 1e-3}, {"lr": 1e-2}])
    >>> with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as executor:
    ...     result = ns.sweep(config, folder, engine=executor)
    >>> result.counts
    {'done': 2}
    """
    refuse_while_importing("sweep")
    check_kind("config", config, SweepConfig)
    check_progress(progress)
    check_engine(engine)  # also if every cell is done and no engine is opened
    folder = Path(output).absolute()
    check_folder(folder)
    cells = make_cells(config.base, config.cells, config.seeds)
    with using_folder(folder, lambda _: (folder / "cells").exists()):
        remarks = _prepare(cells, folder)
        with Run.create(folder / "sweep.db") as run:
            _claim(run, config, remarks)
            waiting = _waiting(run, cells, config.retry)
            jobs = [CellJob(in_callers_folder(cell), folder, config.retry) for cell in waiting]
            if jobs:
                with open_engine(engine) as executor, marked(folder) as shared:
                    needs = cell_needs([job.cell for job in jobs])
                    check_nodes(executor, needs)
                    call = PreparedCall(run_cell_anywhere, needs)
                    _gather(run, lambda job: executor.submit(call, job, shared), jobs, len(cells), progress)
    return read_sweep(folder)


def _prepare(cells: Sequence[Cell], folder: Path) -> list[str]:
    """Open all data once, before many processes do, and check every config; return remarks about them."""
    opened = {data: open_data(data, folder / "data") for data in {cell.config.data for cell in cells}}
    for cell in cells:
        complete_config(cell.config, opened[cell.config.data])
    remarks = [remark for data in opened.values() for remark in data.remarks]
    if any(cell.config.model.mask == "multiplicative" for cell in cells):
        remarks.append(SEES_THE_FUTURE)
    return list(dict.fromkeys(remarks))


def read_sweep(output: str | Path) -> SweepResult:
    """Return the results so far of the sweep in a folder, ordered by their changes."""
    folder = Path(output)
    with Run(folder / "sweep.db") as run:
        cells = sorted(
            run.artifacts(CELL_ARTIFACT).values(),
            key=lambda cell: [_sort_key(v) for v in cell["changes"].values()],
        )
        remarks = tuple(run.meta.get("remarks", ()))
    return SweepResult(folder, folder / "sweep.db", cells, remarks)


def _sort_key(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, (int, float))
    return (not number, value if number else 0.0, "" if number else str(value))


def _claim(run: Run, config: SweepConfig, remarks: Sequence[str]) -> None:
    base = flatten(config.base)
    there = completed(run.meta.get("base", base))
    if name := next((name for name in base if there.get(name) != base[name]), None):
        raise UsageError(
            f"{run.path} is a sweep of another base config ({name} is {there.get(name)} there and "
            f"{base[name]} now): choose another folder"
        )
    with run.transaction():
        run.set_meta("base", base)
        run.set_meta("kind", "sweep")
        run.set_meta("versions", {"normscope": __version__})
        if remarks:
            run.set_meta("remarks", remarks)


def _waiting(run: Run, cells: Sequence[Cell], retry: bool) -> list[Cell]:
    done = run.artifacts(CELL_ARTIFACT)
    return [cell for cell in cells if cell.id not in done or (retry and done[cell.id]["status"] == "failed")]


def _gather(
    run: Run, submit: Callable[[CellJob], Any], jobs: Sequence[CellJob], total: int, progress: Progress
) -> None:
    futures = {as_standard_future(submit(job)): job for job in jobs}
    counts, lost = Counter[str](), 0
    done = total - len(jobs)
    progress(done, total, "starting")
    try:
        for future in as_completed(futures):
            returned = _returned(future, futures[future])
            if returned is None:
                lost += 1
                continue
            _keep(run, returned, futures[future])
            done += 1
            counts[returned.document["status"]] += 1
            progress(done, total, "  ".join(f"{count} {status}" for status, count in counts.items()))
    finally:
        for future in futures:
            future.cancel()
    if lost:
        raise TrainingError(
            f"the engine broke, and {lost} cells have no result: run the same sweep again to continue"
        )


def _returned(future: Future[CellReturn], job: CellJob) -> CellReturn | None:
    """What came back; None if the engine broke."""
    try:
        return future.result()
    except (BrokenExecutor, CancelledError):
        return None
    except NodeProblem:
        raise
    except Exception as error:  # raised by the engine: a worker was lost
        return CellReturn(cell_document(job, "failed", error=str(error)))


def _keep(run: Run, returned: CellReturn, job: CellJob) -> None:
    """Write the document and, if the cell ran on a machine that does not share the folder, its files."""
    write_files(returned, job.folder)
    with run.transaction():
        run.set_artifact(CELL_ARTIFACT, returned.document["id"], returned.document)
        remarks = run.meta.get("remarks", [])
        remark = f"{returned.host} does not share {job.out}: its cells' files came back with the results"
        if returned.host and remark not in remarks:
            run.set_meta("remarks", [*remarks, remark])
