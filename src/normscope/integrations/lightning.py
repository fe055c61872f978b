"""The monitor as a Lightning callback.

    L.Trainer(callbacks=[NormMonitor("run.db")])

Measures go to the Trainer's own loggers; the step is stored in Lightning's checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normscope.errors import MissingExtra
from normscope.integrations.loggers import SCOPE, scope_sentence
from normscope.integrations.monitor_callback import MonitorCallback

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer  # type: ignore[assignment]
    except ImportError:
        raise MissingExtra("lightning", "lightning", "NormMonitor") from None


class NormMonitor(MonitorCallback, Callback):
    """Records the module that a Lightning Trainer fits."""

    _loaded: int | None = None
    """The step of the checkpoint that training continues from."""
    _sent = _logged = -1
    """The last steps whose measures went to the loggers and whose loss was recorded."""

    def state_dict(self) -> dict[str, Any]:
        """What Lightning stores in a checkpoint: the optimizer steps made."""
        return self.monitor.state_dict() if self.monitor else {"step": self._loaded or 0}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._loaded = int(state_dict["step"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Create the monitor, at the step of the checkpoint if there is one."""
        made = trainer.global_step // max(1, len(trainer.optimizers))
        model = trainer.strategy.model or pl_module
        self._start(model, trainer.optimizers, made if self._loaded is None else self._loaded)
        if self.monitor is not None:
            for logger in trainer.loggers:
                logger.log_hyperparams({SCOPE: scope_sentence(self.monitor.scope)})

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record the loss of a recorded step, and send its measures to the Trainer's loggers."""
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
        self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write what is left when training ends early."""
        self._finish()
