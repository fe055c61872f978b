"""What the callbacks of all trainers share: a monitor, created when training begins and closed at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from torch import nn
from torch.optim import Optimizer

from normscope.errors import UsageError
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import Logger, MonitorFields, MonitorOptions, with_fields
from normscope.schedule import Budget, Schedule, logarithmic


class MonitorCallback:
    """Base of a trainer's callback; takes the arguments of `Monitor` that the trainer does not know."""

    def __init__(
        self,
        run: str | os.PathLike[str] = "run.db",
        schedule: Schedule | Budget = logarithmic(200),
        options: MonitorOptions = MonitorOptions(),
        **fields: Unpack[MonitorFields],
    ) -> None:
        options = with_fields(options, fields)
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
