"""The monitor as a callback of the Hugging Face Trainer.

    Trainer(..., callbacks=[NormCallback("run.db")])

Measures go to the trackers named in `report_to` and into the Trainer's log history. The Trainer logs its
loss to these trackers itself, as a mean over the steps since it logged last; the run file has that mean at
the step at which it was logged.
A run resumed with `resume_from_checkpoint` continues in the same run file: the step
is stored in the checkpoint's trainer_state.json.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from normscope.errors import MissingExtra, NormscopeError
from normscope.integrations.loggers import TRACKERS, Tracker
from normscope.integrations.monitor_callback import MonitorCallback
from normscope.integrations.wandb_rows import STEP

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import ExportableState
except ImportError:
    raise MissingExtra("transformers", "hf", "NormCallback") from None

log = logging.getLogger("normscope")


class NormCallback(MonitorCallback, TrainerCallback, ExportableState):
    """Records the model that a Trainer trains."""

    def state(self) -> dict[str, Any]:
        """What the Trainer stores in a checkpoint: the optimizer steps made."""
        return {"args": {}, "attributes": self.monitor.state_dict() if self.monitor else {"step": 0}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> NormCallback:
        """Not supported: a checkpoint has the step, but not the arguments of the callback."""
        raise NormscopeError(
            "NormCallback cannot be restored from a checkpoint: pass callbacks=[NormCallback(...)] to the "
            "Trainer, and it reads the step from the checkpoint"
        )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Create the monitor, at the step of the checkpoint if there is one."""
        trackers = (
            [replace(each, scalars=False) for each in _trackers(args)] if state.is_world_process_zero else []
        )
        self._start(kwargs["model"], kwargs["optimizer"], _steps_made(state), trackers)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the Trainer's loss and tokens; add the newest measures to its log history."""
        if self.monitor is None or logs is None:
            return
        scalars: dict[str, Any] = {name: logs[name] for name in ("loss", "eval_loss") if name in logs}
        if state.num_input_tokens_seen:
            scalars["tokens"] = state.num_input_tokens_seen
        if scalars:
            self.monitor.log_at(self.monitor.step, scalars)
        if state.log_history and self.monitor.latest:
            state.log_history[-1].update({**self.monitor.latest, STEP: self.monitor.latest_step})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write what is left."""
        self._finish()


def _steps_made(state: TrainerState) -> int:
    """Optimizer steps at the checkpoint; the Trainer's own count includes steps that a GradScaler skipped."""
    callbacks: Any = state.stateful_callbacks or {}
    stored = callbacks.get("NormCallback") or {}
    step = stored.get("attributes", {}).get("step", 0) if state.global_step else 0
    return int(step or state.global_step)


def _trackers(args: TrainingArguments) -> Iterable[Tracker]:
    """The trackers in `report_to` that normscope supports; the Trainer has started them by now."""
    for name in args.report_to or ():
        if name not in TRACKERS:
            continue
        try:
            if name == "tensorboard":
                folder = os.environ.get("TENSORBOARD_LOGGING_DIR") or Path(args.output_dir or ".") / "runs"
                yield TRACKERS[name](Path(folder) / "normscope")
            else:
                yield TRACKERS[name]()
        except NormscopeError as error:
            log.warning("normscope: nothing is logged to %s: %s", name, error)
