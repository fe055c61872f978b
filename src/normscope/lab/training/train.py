"""Train a small transformer, save its checkpoints, record its curves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from normscope.errors import Diverged, UsageError
from normscope.lab.config import DataConfig, TrainConfig, override
from normscope.lab.data.dataset import Dataset
from normscope.lab.program_fields import check_programs
from normscope.lab.training.callback import Callback
from normscope.lab.training.folder_use import using_folder
from normscope.lab.training.train_result import TrainResult
from normscope.lab.training.trainer import RunPaths, Trainer
from normscope.lab.unused_fields import changed_fields, refuse_unused
from normscope.network.places.programs import refuse_while_importing
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.schedule import NEVER


def train(
    config: TrainConfig,
    output: str | Path,
    *,
    run: str | Path | None = None,
    data: str | Path | Dataset | Callable[[DataConfig], Dataset] | None = None,
    callbacks: Sequence[Callback] = (),
    scan: bool = False,
    progress: Progress = silent,
) -> TrainResult:
    """Train the small transformer of `config` and leave everything in the folder `output`.

    An unfinished run in the folder is continued. The run file is `output`/run.db unless `run`
    names another. Tokenised text is kept in the folder `data` (`output`/data by default), where further runs
    can use it; `data` may also be a dataset of your own, or a function of the DataConfig that returns one.
    The config takes objects of your own for everything else: see `ModelConfig.network`,
    `OptimizerConfig.optimizer`, `OptimizerConfig.constraint`, `TrainConfig.loss`. `callbacks` are called
    during the run, see `Callback`; `progress` is called with (step, steps, note). With `scan`, the
    checkpoints are measured into the run file at the end.

    >>> import normscope as ns, tempfile
    >>> config = ns.TrainConfig(steps=3, batch=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = ns.train(config, folder)
    >>> result.steps, result.loss < 6
    (3, True)
    """
    refuse_while_importing("train")
    check_kind("config", config, TrainConfig)
    if data is not None and not isinstance(data, str | os.PathLike):
        config, data = override(config, {"dataset": data}), None
    check_progress(progress)
    check_kind("callbacks", callbacks, Sequence, "a list")
    for callback in callbacks:
        check_kind("each of the callbacks", callback, Callback)
    check_programs([config])
    refuse_unused(changed_fields(config), [config])
    if scan and config.save == NEVER:
        raise UsageError("scan=True measures checkpoints, but save is never: choose when to save")
    folder = Path(output)
    paths = RunPaths(folder, Path(run or folder / "run.db"), Path(data or folder / "data"))
    result = train_in(paths, config, callbacks, progress)
    if scan:
        from normscope.weights.scan.scan import scan as scan_checkpoints

        scan_checkpoints(result.checkpoints, result.run).close()
    return result


def train_in(
    paths: RunPaths, config: TrainConfig, callbacks: Sequence[Callback] = (), progress: Progress = silent
) -> TrainResult:
    """Train in a folder; the cells of a sweep may have fields that only other cells use."""
    resumed = (paths.out / "state.pt").exists()
    running: list[Trainer] = []

    def begun(error: BaseException) -> bool:
        return resumed or isinstance(error, Diverged) or any(trainer.step > 0 for trainer in running)

    with (
        using_folder(paths.out, begun, paths.run),
        Trainer(config, paths, [*_observers(config), *callbacks]) as trainer,
    ):
        running.append(trainer)
        return trainer.fit(progress)


def _observers(config: TrainConfig) -> list[Callback]:
    """Import what observes the run only if it is used: every cell of a sweep passes here."""
    if config.saturation == NEVER == config.monitor == config.spectrum:
        return []
    from normscope.lab.training.observers import observers

    return observers(config)
