"""Callbacks that measure during a run: what growth does to the network, updates and gradients."""

from __future__ import annotations

import torch

from normscope.errors import NormscopeError
from normscope.lab.config import TrainConfig
from normscope.lab.optimizing.muon import optimizer_parts
from normscope.lab.training.callback import Callback
from normscope.lab.training.held_out import held_out_batches
from normscope.lab.training.saturated_evaluation import evaluate_saturated
from normscope.lab.training.spectrum_observer import SpectrumObserver
from normscope.lab.training.trainer import Trainer
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.live.probing.plain_pass import PlainPass
from normscope.network.measuring.joint import saturation_and_heads
from normscope.network.recording import head_rows, saturation_rows
from normscope.network.running.batches import sample
from normscope.network.watching.block_lists import find_blocks
from normscope.rows import LIVE_PROBES, SATURATION_ERRORS
from normscope.run import Row
from normscope.schedule import NEVER, Schedule


def observers(config: TrainConfig) -> list[Callback]:
    """Return the callbacks that a config asks for."""
    found: list[Callback] = []
    if config.monitor != NEVER:  # first: it deletes what an earlier training left, see SaturationObserver
        found.append(MonitorObserver(config.monitor))
    if config.saturation != NEVER:
        found.append(SaturationObserver(config.saturation))
    if config.spectrum != NEVER:
        found.append(SpectrumObserver(config.spectrum))
    return found


class SaturationObserver(Callback):
    """Measures the network on held-out data, as the probe of a monitor does, and the task when saturated.

    Recorded are saturation and the size of the residual stream by layer, type, largest logit and entropy of
    each head, the size of the output logits, and how well the saturated network does the task.

    The parameters are scaled in place and restored bit for bit, so training is not affected. A model that
    cannot be measured, such as one with infinite parameters, leaves a note in the run file: it may be the
    last result of a long training.

    What was measured is written with the first state that is saved after it, when a monitor has deleted what
    an earlier training left in the file.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._rows: list[Row] = []
        self._notes: dict[int, dict[str, list[str]]] = {}

    def on_start(self, trainer: Trainer) -> None:
        """Measure the untrained network too: later steps are compared with it."""
        config = trainer.config
        held_out = trainer.data.evaluations(config.eval_batches, config.batch)["valid"]
        self._batches = held_out_batches(trainer.data, held_out, torch.device(config.device))
        known = trainer.step or -1
        with trainer.run.transaction():
            for kind in (SATURATION_ERRORS, LIVE_PROBES):
                trainer.run.delete_rows("artifact", "kind = ? AND CAST(key AS INTEGER) > ?", (kind, known))
        if trainer.step == 0 and 0 in self._schedule:
            self._measure(trainer)

    def on_step(self, trainer: Trainer) -> None:
        """Measure at the steps of the schedule, and at the last step."""
        if trainer.step in self._schedule or trainer.step == trainer.config.steps:
            self._measure(trainer)

    def on_save(self, trainer: Trainer) -> None:
        """Write what was measured."""
        if trainer.step > 0:
            self._write(trainer)

    def on_end(self, trainer: Trainer) -> None:
        """Write what was measured before training failed."""
        self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        if not self._rows:
            return
        with trainer.run.transaction():
            trainer.run.write(self._rows)
            for step, note in self._notes.items():
                trainer.run.set_artifact(LIVE_PROBES, str(step), note)
        self._rows.clear()
        self._notes.clear()

    def _measure(self, trainer: Trainer) -> None:
        parts = {
            "saturation": self._measure_limit,
            "attention": self._measure_activations,
            "the task in the saturated network": self._measure_task,
        }
        for name, measure in parts.items():
            try:
                measure(trainer)
            except NormscopeError as error:
                note = f"{name} was not measured at step {trainer.step}: {error}"
                with trainer.run.transaction():
                    trainer.run.set_artifact(SATURATION_ERRORS, str(trainer.step), note)
                return

    def _measure_limit(self, trainer: Trainer) -> None:
        found = saturation_and_heads(trainer.model, self._batches)
        self._rows += saturation_rows(found.saturation, trainer.step)
        self._rows += head_rows(found.heads, trainer.step)
        self._notes[trainer.step] = {"problems": [], "warnings": list(found.messages)}

    def _measure_activations(self, trainer: Trainer) -> None:
        passing = PlainPass(trainer.model, find_blocks(trainer.model, sample(self._batches)))
        for batch in self._batches:
            passing.run(batch)
        self._rows += passing.attention_rows(trainer.step)
        self._rows += passing.activation_rows(trainer.step)

    def _measure_task(self, trainer: Trainer) -> None:
        config = trainer.config
        task = evaluate_saturated(trainer.model, trainer.data, config.eval_batches, config.batch)
        for name, value in task.items():
            trainer.record(name, value)
        if trainer.step == config.steps:
            trainer.evaluation = trainer.evaluation | task


class MonitorObserver(Callback):
    """Attaches the live monitor, which records sums of parameters, updates and gradients per tensor."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._monitor: Monitor | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Start the monitor at the current step, which is not 0 in a resumed run."""
        options = MonitorOptions(step=trainer.step)
        self._monitor = Monitor(
            trainer.model, optimizer_parts(trainer.optimizer), trainer.run.path, self._schedule, options
        )

    def on_save(self, trainer: Trainer) -> None:
        """Write everything to the run file."""
        if self._monitor is not None:
            self._monitor.flush()

    def on_end(self, trainer: Trainer) -> None:
        """Detach the monitor."""
        if self._monitor is not None:
            self._monitor.close()
