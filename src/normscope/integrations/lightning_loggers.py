"""The loggers of a Lightning Trainer, as destinations of a monitor.

Those whose clients work from any thread get their values in the background. All others are called in the
training thread, as Lightning does it itself: a CSVLogger would lose rows if two threads used it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from normscope.integrations.loggers import SCOPE, Tracker, mlflow, scope_sentence, tensorboard, wandb
from normscope.live.guard import Guard
from normscope.live.monitor_options import LoggedValues

IN_BACKGROUND: Mapping[str, Callable[[Any], Tracker]] = {
    "TensorBoardLogger": lambda logger: tensorboard(logger.experiment),
    "WandbLogger": lambda logger: wandb(logger.experiment),
    "MLFlowLogger": lambda logger: mlflow(logger.run_id, logger.experiment),
}
"""What makes a tracker of a logger, by the name of its class: there are two packages of the same classes."""


def _kind(logger: Any) -> str | None:
    names = (each.__name__ for each in type(logger).__mro__)
    return next((name for name in names if name in IN_BACKGROUND), None)


def trackers_of(loggers: Iterable[Any], guard: Guard) -> list[Tracker]:
    """Trackers for the loggers that can be used in the background; one that cannot be opened is said."""
    found = []
    for logger in loggers:
        kind = _kind(logger)
        if kind is not None:
            with guard.doing(f"opening {kind}"):
                found.append(IN_BACKGROUND[kind](logger))
    return found


class DirectLoggers:
    """The loggers that are called in the training thread; what they raise is logged, not raised."""

    def __init__(self, loggers: Iterable[Any], guard: Guard) -> None:
        self._loggers: Sequence[Any] = [logger for logger in loggers if _kind(logger) is None]
        self._guard = guard

    def describe(self, scope: str) -> None:
        """Say which parameters the values count."""
        for logger in self._loggers:
            with self._guard.doing(f"describing the values to {type(logger).__name__}"):
                logger.log_hyperparams({SCOPE: scope_sentence(scope)})

    def send(self, values: LoggedValues, step: int) -> None:
        """Send the values of a step."""
        for logger in self._loggers:
            with self._guard.doing(f"logging to {type(logger).__name__}"):
                logger.log_metrics(dict(values), step=step)
