"""The monitor as a Lightning callback.

    L.Trainer(callbacks=[NormMonitor("run.db")])

Totals go to the Trainer's own loggers; the step travels in Lightning's checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from normscope.errors import MissingExtra
from normscope.schedule import Budget, Schedule, logarithmic
from normscope.weights.monitor.monitor import Monitor
from normscope.weights.monitor.monitor_options import MonitorOptions

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer  # type: ignore[assignment]
    except ImportError:
        raise MissingExtra("lightning", "lightning", "NormMonitor") from None


class NormMonitor(Callback):
    """Watches the module that a Lightning Trainer fits."""

    def __init__(
        self,
        run: str | os.PathLike[str] = "run.db",
        schedule: Schedule | Budget = logarithmic(200),
        options: MonitorOptions = MonitorOptions(),
    ) -> None:
        self.monitor: Monitor | None = None
        self._arguments = (run, schedule)
        self._options = options
        self._loaded: int | None = None
        self._sent = self._logged = -1

    def state_dict(self) -> dict[str, Any]:
        """What Lightning keeps in a checkpoint: the optimizer steps made."""
        return self.monitor.state_dict() if self.monitor else {"step": self._loaded or 0}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._loaded = int(state_dict["step"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start watching, from the step of the checkpoint if there is one."""
        made = trainer.global_step // max(1, len(trainer.optimizers))
        options = replace(self._options, step=made if self._loaded is None else self._loaded)
        model = trainer.strategy.model or pl_module
        self.monitor = Monitor(model, trainer.optimizers, *self._arguments, options)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the loss of a recorded step, and hand its totals to the Trainer's loggers."""
        monitor = self.monitor
        if monitor is None:
            return
        if monitor.step != self._logged and isinstance(outputs, Mapping) and "loss" in outputs:
            monitor.log(loss=outputs["loss"])
        self._logged = monitor.step
        if monitor.latest_step > self._sent:
            self._sent = monitor.latest_step
            for logger in trainer.loggers:
                logger.log_metrics(dict(monitor.latest), step=monitor.latest_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is left."""
        if self.monitor is not None:
            self.monitor.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write what is left, also when training ends early."""
        self.on_train_end(trainer, pl_module)
