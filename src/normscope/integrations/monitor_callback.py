"""What the callbacks of all trainers share: a monitor, created when training begins and closed at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from normscope.errors import UsageError
from normscope.schedule import Budget, Schedule, logarithmic
from normscope.weights.monitor.monitor import Monitor
from normscope.weights.monitor.monitor_options import Logger, MonitorOptions


class MonitorCallback:
    """Base of a trainer's callback; takes the arguments of `Monitor` that the trainer does not know."""

    def __init__(
        self,
        run: str | os.PathLike[str] = "run.db",
        schedule: Schedule | Budget = logarithmic(200),
        options: MonitorOptions = MonitorOptions(),
    ) -> None:
        if options.step:
            raise UsageError(
                "the step is read from the trainer's checkpoint: leave out step in MonitorOptions; "
                f"got step={options.step}"
            )
        self.monitor: Monitor | None = None
        """The monitor; None until training begins."""
        self._run, self._schedule, self._options = run, schedule, options

    def _start(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        step: int,
        loggers: Sequence[Logger] = (),
    ) -> None:
        """Create the monitor at the trainer's step; `loggers` come after the user's own."""
        options = replace(self._options, step=step, loggers=[*self._options.loggers, *loggers])
        self.monitor = Monitor(model, optimizer, self._run, self._schedule, options)

    def _finish(self) -> None:
        """Write what is left."""
        if self.monitor is not None:
            self.monitor.close()
