"""Many runs as one experiment: cells in parallel, results as they come, nothing done twice.

    OUT/sweep.db          one artifact of kind "cell" for each finished cell (see docs/lab.md)
    OUT/cells/ID/         the cell's own run: run.db, config.json, checkpoints if they are kept
    OUT/data/             the tokenised text, mapped by every process

A cell that diverges or fails is a result like any other. Its processes may die: a cell
continues from its saved state, and a finished one is known by its result on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope._version import __version__
from normscope.errors import TrainingError, UsageError
from normscope.lab.config import TrainConfig, flat
from normscope.lab.data.data_sources import open_data
from normscope.lab.sweep.cells import SEED_RULES, Cell, make_cells
from normscope.lab.sweep.engine import Submits, open_engine, standard
from normscope.lab.sweep.outcome import Job, document_of, run_cell
from normscope.lab.training.checkpointing import lock
from normscope.progress import Progress, silent
from normscope.run import Run
from normscope.table import Table, Tabular

KIND = "cell"


@dataclass(frozen=True)
class SweepConfig:
    """What to sweep: a base config and the changes of each cell (see `grid`).

    With `retry`, cells recorded as failed are tried again; diverged ones would only diverge again.
    """

    base: TrainConfig = field(default_factory=TrainConfig)
    cells: Sequence[Mapping[str, Any]] = ()
    seeds: str = "same"
    retry: bool = False

    def __post_init__(self) -> None:
        if self.seeds not in SEED_RULES:
            raise UsageError(f"the seeds of cells are {' or '.join(SEED_RULES)}, not {self.seeds!r}")


@dataclass(frozen=True)
class SweepResult(Tabular):
    """Every finished cell, as its JSON document; the documents are described in docs/lab.md."""

    out: Path
    run: Path
    cells: Sequence[Mapping[str, Any]]

    @property
    def counts(self) -> dict[str, int]:
        """How many cells are done, diverged and failed."""
        return dict(Counter(cell["status"] for cell in self.cells))

    @property
    def table(self) -> Table:
        """A row a cell: what it changed, its status, norms and losses."""
        names = list(dict.fromkeys(name for cell in self.cells for name in cell["changes"]))
        columns: dict[str, list[Any]] = {n: [cell["changes"].get(n) for cell in self.cells] for n in names}
        for name in ("status", "norm_start", "norm_end", "body_norm_start", "body_norm_end", "loss"):
            columns[name] = [cell.get(name) for cell in self.cells]
        return Table(columns)


def sweep(
    config: SweepConfig,
    out: str | Path,
    engine: Submits | str | None = None,
    progress: Progress = silent,
) -> SweepResult:
    """Run every cell that has no result yet, on local processes or on the engine given.

    `engine` is any `concurrent.futures.Executor`, or what submits like one (it is not shut down);
    or an address: `local:4`, `ray`, `ray://head:10001`.
    """
    folder = Path(out).absolute()
    cells = make_cells(config.base, config.cells, config.seeds)
    for data in {cell.config.data for cell in cells}:
        open_data(data, folder / "data")  # once, before many processes want it
    with lock(folder), Run.create(folder / "sweep.db") as run:
        _claim(run, config)
        waiting = _waiting(run, cells, config.retry)
        jobs = [Job(cell, folder, config.retry) for cell in waiting]
        if jobs:
            with _opened(engine) as executor:
                _gather(run, executor, jobs, len(cells), progress)
    return read_sweep(folder)


@contextmanager
def _opened(engine: Submits | str | None) -> Iterator[Submits]:
    """The executor that was given, or one for its address that ends with the sweep."""
    if engine is None or isinstance(engine, str):
        with open_engine(engine) as executor:
            yield executor
    else:
        yield engine


def read_sweep(out: str | Path) -> SweepResult:
    """The results of a sweep so far, in the order of their changes."""
    folder = Path(out)
    with Run(folder / "sweep.db") as run:
        cells = sorted(
            run.artifacts(KIND).values(), key=lambda cell: [_sort_key(v) for v in cell["changes"].values()]
        )
    return SweepResult(folder, folder / "sweep.db", cells)


def _sort_key(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, (int, float))
    return (not number, value if number else 0.0, "" if number else str(value))


def _claim(run: Run, config: SweepConfig) -> None:
    base = flat(config.base)
    there = run.meta.get("base", base)
    if there != base:
        name = next(name for name in base if there.get(name) != base[name])
        raise UsageError(
            f"{run.path} holds a sweep of another base ({name} is {there.get(name)} there and "
            f"{base[name]} now): choose another folder"
        )
    with run.transaction():
        run.set_meta("base", base)
        run.set_meta("kind", "sweep")
        run.set_meta("versions", {"normscope": __version__})


def _waiting(run: Run, cells: Sequence[Cell], retry: bool) -> list[Cell]:
    done = run.artifacts(KIND)
    return [cell for cell in cells if cell.id not in done or (retry and done[cell.id]["status"] == "failed")]


def _gather(run: Run, engine: Submits, jobs: Sequence[Job], total: int, progress: Progress) -> None:
    futures = {standard(engine.submit(run_cell, job)): job for job in jobs}
    counts, lost = Counter[str](), 0
    done = total - len(jobs)
    progress(done, total, "starting")
    try:
        for future in as_completed(futures):
            try:
                document = future.result()
            except (BrokenExecutor, CancelledError):
                lost += 1
                continue
            except Exception as error:  # the engine's own: a worker lost for good
                document = document_of(futures[future], "failed", error=str(error))
            with run.transaction():
                run.set_artifact(KIND, document["id"], document)
            done += 1
            counts[document["status"]] += 1
            progress(done, total, "  ".join(f"{count} {status}" for status, count in counts.items()))
    finally:
        for future in futures:
            future.cancel()
    if lost:
        raise TrainingError(
            f"the engine broke and {lost} cells have no result: run the same sweep again to continue"
        )
