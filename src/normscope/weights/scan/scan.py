"""Measure a series of checkpoints into a run file: resumable, each byte read once.

Work is divided by tensor, and large tensors into parts; each worker, a thread per core by
default, walks a part across all checkpoints (`walk`). `measuring` hands the parts out, collects the sums and
writes whole tensors, so a killed scan loses only the tensors that were not finished.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from normscope.checkpoints.ranges.patience import LONGEST_WAIT
from normscope.checkpoints.series.name_pattern import NamePattern
from normscope.checkpoints.series.series import CheckpointSeries, CheckpointSource, open_series
from normscope.engines.engine import SupportsSubmit, check_engine
from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind, check_number, check_progress
from normscope.progress import Progress, silent
from normscope.remarks import write_remarks
from normscope.run import Run
from normscope.weights.inventory.equal_tensors import tie_equal_tensors
from normscope.weights.inventory.inventory import TensorChoice
from normscope.weights.scan.measuring import measure
from normscope.weights.scan.ownership import claim
from normscope.weights.scan.plugin_measures import plugin_measures, record_measures
from normscope.weights.scan.rechecks import conclude, note_kernel, refuse_differing
from normscope.weights.scan.recorded_checkpoints import join_recorded
from normscope.weights.scan.remote_scan import measure_remote, telling_waits
from normscope.weights.scan.scan_record import write_inventory, write_kernels, write_provenance
from normscope.weights.scan.scan_stage import ScanStage, open_stage, refuse_other_shapes
from normscope.weights.soundness.check import check_scan
from normscope.weights.tensor_patterns import check_pattern_list, check_patterns
from normscope.words import joined


@dataclass(frozen=True)
class ScanConfig:
    """How to scan.

    `steps` are the steps of the checkpoints, one for each in the order of their names, if the names say
    none or a wrong one. `revisions` are patterns for the branches and tags of a Hugging Face repository,
    each of which is a checkpoint; "commits:main" are the commits of a branch that name a step. `pattern` is
    a regular expression that reads the names instead, with named groups: `r"model_(?P<epoch>\\d+)_"`; they
    may be step, epoch, stage and tokens. `skip` are glob patterns of tensor names to leave out; `keep` are
    those of tensors to measure although a rule says that they are no parameters. `workers` is the number of
    threads; for remote files, of requests at a time. If it is not given, there is one thread per core, and
    as many requests as make remote files arrive faster. An `engine` replaces the threads: `processes:4`,
    `ray`, `ray://head:10001`, `dask:scheduler:8786`, or any `concurrent.futures.Executor`, which is not
    shut down. Its workers read the checkpoints themselves, under the same addresses; only this process
    writes. An executor that does not say how many calls it runs at a time gets a few per `workers`.
    `command` is recorded in the run file. `measures` says whether the measures of plugins are computed
    after the sums. `add` says that the series continues the one that the run file already has, in another
    place. `patience` is how many seconds a server that limits requests may make one request wait. `verify`
    reads everything again and compares it with what the run file recorded; what differs is named in a
    ReplacedCheckpoint.

    >>> ns.ScanConfig(skip=["rope_*"], workers=2).skip
    ['rope_*']
    """

    steps: Sequence[int] | None = field(default=None, hash=False)
    revisions: str | Sequence[str] | None = field(default=None, hash=False)
    skip: Collection[str] = field(default=(), hash=False)
    keep: Collection[str] = field(default=(), hash=False)
    workers: int | None = None
    command: str | None = None
    engine: SupportsSubmit | str | None = None
    measures: bool = True
    add: bool = False
    pattern: str | None = None
    patience: float = LONGEST_WAIT
    verify: bool = False

    def __post_init__(self) -> None:
        if self.workers is not None:
            object.__setattr__(self, "workers", check_integer("workers", self.workers, 1))
        check_pattern_list("skip", self.skip)
        check_pattern_list("keep", self.keep)
        if self.pattern is not None:
            NamePattern(self.pattern)
        check_kind("add", self.add, bool, "True or False")
        check_kind("verify", self.verify, bool, "True or False")
        check_engine(self.engine)
        check_number("patience", self.patience, 0)

    @property
    def threads(self) -> int:
        """Threads that sum local checkpoints: `workers`, or one per core."""
        return self.workers or os.cpu_count() or 1


def scan(
    source: CheckpointSource | Sequence[CheckpointSource],
    run: str | os.PathLike[str] = "run.db",
    config: ScanConfig | None = None,
    *,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    skip: Collection[str] | None = None,
    keep: Collection[str] | None = None,
    workers: int | None = None,
    engine: SupportsSubmit | str | None = None,
    add: bool | None = None,
    pattern: str | None = None,
    patience: float | None = None,
    verify: bool | None = None,
    progress: Progress = silent,
) -> Run:
    """Measure every checkpoint of a series that is not yet in the run file, and open the run file.

    `source` is a folder of checkpoints, a file, a glob, a URL, or a list of these; `run` is the run file.
    `steps`, `revisions`, `skip`, `keep`, `workers`, `engine`, `add`, `pattern`, `patience` and `verify` are
    explained in ScanConfig; give them or a `config`, not both. `progress` is called with (bytes done, bytes
    in all, note). A run file belongs to one series: another one is refused.

    >>> import numpy as np, normscope as ns, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for step in (10, 20, 30):
    ...     np.savez(f"{folder}/step_{step}.npz", w=np.full((3, 3), step / 10))
    >>> with ns.scan(folder, f"{folder}/run.db") as run:
    ...     [row.step for row in run.checkpoints()], run.query("SELECT sumsq FROM weight")
    ([10, 20, 30], [(9.0,), (36.0,), (81.0,)])
    """
    check_progress(progress)
    check_kind("run", run, (str, os.PathLike), "the path of a run file")
    options: dict[str, Any] = {"steps": steps, "revisions": revisions, "skip": skip, "keep": keep}
    options |= {"workers": workers, "engine": engine}
    options |= {"add": add, "pattern": pattern, "patience": patience, "verify": verify}
    config = _one_config(config, {name: value for name, value in options.items() if value is not None})
    with telling_waits(config.patience, progress):
        series = open_series(source, steps=config.steps, revisions=config.revisions, pattern=config.pattern)
    scan_series(series, run, config, progress)
    return Run(run)


def _one_config(config: ScanConfig | None, given: Mapping[str, Any]) -> ScanConfig:
    if config is None:
        return ScanConfig(**given)
    if given:
        names = joined(f"`{name}`" for name in given)
        raise UsageError(f"give {names} in the ScanConfig or as a keyword, not both")
    check_kind("config", config, ScanConfig)
    return config


def scan_series(
    series: CheckpointSeries,
    run: Run | str | os.PathLike[str],
    config: ScanConfig,
    progress: Progress = silent,
    *,
    intersect: bool = False,
    more: Callable[[Run, Sequence[ScanStage]], None] | None = None,
) -> None:
    """Like `scan`, for a series that is already found. If it cannot be read, no run file is created.

    With `intersect`, checkpoints that disagree are all measured, in the tensors that they have in common.
    `more` measures what else is wanted, after the sums, while the checkpoints are open.
    """
    measures = plugin_measures() if config.measures else ()
    with ExitStack() as stack:
        progress = stack.enter_context(telling_waits(config.patience, progress))
        path = run.path if isinstance(run, Run) else Path(run)
        if config.verify and not path.exists():
            raise UsageError(
                f"--verify compares with what a run file recorded, but there is no {path}; leave it out"
            )
        existing = stack.enter_context(Run.create(path)) if path.exists() else None
        series, ownership = join_recorded(series, existing, config.add)
        choice = TensorChoice(config.skip, config.keep, intersect, _counted(existing))
        stages = _open_stages(series, choice, stack)
        refuse_other_shapes(stages)
        _check_patterns(config, stages)
        target = existing or stack.enter_context(Run.create(path))
        with target.transaction():
            notes = claim(target, ownership, stages)
            for stage in stages:
                notes += stage.register(target, config.verify)
            write_provenance(target, series.name, config.command)
            write_inventory(target, stages, [*notes, *series.notes])
            rechecks = [stage.recheck for stage in stages]
            note_kernel(target, rechecks)
        tasks = [task for stage in stages for task in stage.tasks(target)]
        rest = tasks if config.engine else measure_remote(tasks, target, config.workers, progress)
        kernels = measure(rest, target, config.threads, config.engine, progress)
        for stage in stages if tasks else ():
            stage.check_not_rewritten()
        with target.transaction():
            write_kernels(target, kernels)
            tie_equal_tensors(target, [stage.checkpoints[-1] for stage in stages])
        record_measures(target, measures, stages, progress)
        findings = check_scan(target, stages)
        with target.transaction():
            left_out = [*series.left_out, *(each for stage in stages for each in stage.left_out)]
            write_remarks(target, left_out, findings)
            conclude(target, rechecks)
            target.set_meta("complete", True)
        refuse_differing(target, rechecks)
        if more is not None:
            more(target, stages)


def _counted(run: Run | None) -> dict[str, str]:
    """Names of tied tensors in a run file, and those under which they are counted."""
    rows = run.tensors() if run is not None else []
    names = {row.id: row.name for row in rows}
    return {row.name: names[row.tied_to] for row in rows if row.tied_to is not None}


def _open_stages(series: CheckpointSeries, choice: TensorChoice, stack: ExitStack) -> list[ScanStage]:
    return [
        open_stage(list(entries), choice, stack)
        for _, entries in groupby(series.entries, key=lambda entry: entry.stage)
    ]


def _check_patterns(config: ScanConfig, stages: Sequence[ScanStage]) -> None:
    names = dict.fromkeys(name for stage in stages for name in stage.names)
    measured = {tensor.name for stage in stages for tensor in stage.inventory.tensors}
    skipped = {name: why for stage in stages for name, why in stage.inventory.skipped.items()}
    unmeasured = {name: why for name, why in skipped.items() if name not in measured}
    check_patterns(config.skip, config.keep, names, unmeasured)
