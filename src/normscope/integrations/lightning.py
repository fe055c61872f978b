"""The monitor as a Lightning callback.

    L.Trainer(callbacks=[NormMonitor("run.db")])

Measures and the loss go to the Trainer's own loggers; the step is stored in Lightning's checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normscope.errors import MissingExtra
from normscope.integrations.lightning_loggers import DirectLoggers, trackers_of
from normscope.integrations.monitor_callback import MonitorCallback
from normscope.live.guard import Guard

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
    _loss: Any = 0.0
    _batches = 0
    """The sum of the losses since the last step, and of how many batches."""

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
        self._guard, self._sent = Guard(), -1
        self._direct = DirectLoggers(trainer.loggers if trainer.is_global_zero else (), self._guard)
        trackers = trackers_of(trainer.loggers, self._guard) if trainer.is_global_zero else []
        self._start(model, trainer.optimizers, made if self._loaded is None else self._loaded, trackers)
        if self.monitor is not None:
            self._logged = self.monitor.step
            self._direct.describe(self.monitor.scope)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record the loss of a recorded step, and send its measures to the Trainer's loggers."""
        monitor = self.monitor
        if monitor is None:
            return
        with self._guard.doing("recording the loss"):
            self._add_loss(
                outputs, trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
            )
            if monitor.step == self._logged:
                return  # the step goes on with another batch
            self._logged = monitor.step
            loss = {"loss": self._loss / self._batches} if self._batches else {}
            self._loss, self._batches = 0.0, 0
            if monitor.latest_step == monitor.step:
                loss = {name: float(value) for name, value in loss.items()}
                monitor.log(**loss)
            if monitor.latest_step > self._sent:
                self._sent = monitor.latest_step
                logged = {f"normscope/{name}": value for name, value in loss.items()}
                self._direct.send({**monitor.latest, **logged}, monitor.latest_step)

    def _add_loss(self, outputs: Any, divided_by: int) -> None:
        """Add the loss of a batch as the user computed it: Lightning divides it before it is accumulated."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        if loss is not None:
            self._loss = self._loss + loss.detach() * divided_by
            self._batches += 1

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is left."""
        self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write what is left when training ends early."""
        self._finish()
