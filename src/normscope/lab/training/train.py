"""Train a small transformer, save its checkpoints, record its curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from normscope.lab.config import TrainConfig
from normscope.lab.training.checkpointing import lock
from normscope.lab.training.trainer import Callback, Paths, Trainer, TrainResult
from normscope.progress import Progress, silent
from normscope.schedule import NEVER


def train(
    config: TrainConfig,
    out: str | Path,
    progress: Progress = silent,
    *,
    run: str | Path | None = None,
    data: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    scan: bool = False,
) -> TrainResult:
    """Train as `config` says and leave everything in the folder `out`; a run found there is continued.

    The run file is `out`/run.db unless `run` names another; tokenised text is kept in `data`
    (`out`/data by default), where further runs find it. With `scan`, the checkpoints are
    measured into the run file at the end.
    """
    folder = Path(out)
    paths = Paths(folder, Path(run or folder / "run.db"), Path(data or folder / "data"))
    with lock(folder), Trainer(config, paths, [*_observers(config), *callbacks]) as trainer:
        result = trainer.fit(progress)
    if scan and config.save != NEVER:
        from normscope.weights.scan.scan import scan as scan_checkpoints

        scan_checkpoints(result.checkpoints, result.run).close()
    return result


def _observers(config: TrainConfig) -> list[Callback]:
    """What watches the run; loaded only when it is asked for, since every cell of a sweep starts here."""
    if config.saturation == NEVER == config.monitor:
        return []
    from normscope.lab.training.observers import observers

    return observers(config)
