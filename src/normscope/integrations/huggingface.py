"""The monitor as a callback of the Hugging Face Trainer.

    Trainer(..., callbacks=[NormCallback("run.db")])

Totals go to whatever `report_to` names, and into the Trainer's log history. A
run resumed with `resume_from_checkpoint` goes on in the same file: the step
travels in the checkpoint's trainer_state.json.
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
from normscope.schedule import Budget, Schedule, logarithmic
from normscope.weights.monitor.monitor import Monitor
from normscope.weights.monitor.monitor_options import Logger, MonitorOptions

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import ExportableState
except ImportError:
    raise MissingExtra("transformers", "hf", "NormCallback") from None

log = logging.getLogger("normscope")


class NormCallback(TrainerCallback, ExportableState):
    """Watches the model that a Trainer trains."""

    def __init__(
        self,
        run: str | os.PathLike[str] = "run.db",
        schedule: Schedule | Budget = logarithmic(200),
        options: MonitorOptions = MonitorOptions(),
    ) -> None:
        self.monitor: Monitor | None = None
        self._arguments = (run, schedule)
        self._options = options

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in a checkpoint: the optimizer steps made."""
        return {"args": {}, "attributes": {"step": self.monitor.step if self.monitor else 0}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> NormCallback:
        """A checkpoint holds a step, not a callback: the Trainer keeps the one it has been given."""
        raise NormscopeError(
            "pass NormCallback(...) to the Trainer: it finds its step in the checkpoint by itself"
        )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start watching, from the step of the checkpoint if there is one."""
        loggers: list[Logger] = [*self._options.loggers]
        if state.is_world_process_zero:
            loggers += _trackers(args)
        options = replace(self._options, step=_steps_made(state), loggers=loggers)
        self.monitor = Monitor(kwargs["model"], kwargs["optimizer"], *self._arguments, options)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the Trainer's loss and tokens; give it the newest totals for its history."""
        if self.monitor is None or logs is None:
            return
        known: dict[str, Any] = {name: logs[name] for name in ("loss", "eval_loss") if name in logs}
        if state.num_input_tokens_seen:
            known["tokens"] = state.num_input_tokens_seen
        if known:
            self.monitor.log_at(self.monitor.step, known)
        if state.log_history:
            state.log_history[-1].update(self.monitor.latest)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write what is left."""
        if self.monitor is not None:
            self.monitor.close()


def _steps_made(state: TrainerState) -> int:
    """Optimizer steps at the checkpoint; the Trainer's own count includes those a GradScaler skipped."""
    callbacks: Any = state.stateful_callbacks or {}
    kept = callbacks.get("NormCallback") or {}
    step = kept.get("attributes", {}).get("step", 0) if state.global_step else 0
    return int(step or state.global_step)


def _trackers(args: TrainingArguments) -> Iterable[Tracker]:
    """What `report_to` names, as far as normscope speaks it; the Trainer has started them by now."""
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
            log.warning("normscope: nothing goes to %s: %s", name, error)
