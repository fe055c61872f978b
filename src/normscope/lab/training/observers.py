"""What watches a run of the lab on a schedule of its own: saturation and heads, updates and gradients."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from normscope.lab.config import TrainConfig
from normscope.lab.training.trainer import Callback, Trainer
from normscope.network.attention.heads import heads
from normscope.network.limit.saturation import saturation
from normscope.network.running.batches import Batch
from normscope.run import HeadRow, SaturationRow
from normscope.schedule import NEVER, Schedule
from normscope.weights.monitor.monitor import Monitor
from normscope.weights.monitor.monitor_options import MonitorOptions


def observers(config: TrainConfig) -> list[Callback]:
    """The callbacks that a config asks for."""
    found: list[Callback] = []
    if config.saturation != NEVER:
        found.append(NetworkObserver(config.saturation))
    if config.monitor != NEVER:
        found.append(UpdateObserver(config.monitor))
    return found


class NetworkObserver(Callback):
    """Measures how saturated each layer is and what each head does, on the held-out data.

    The parameters are scaled in place and restored bit for bit: training does not notice.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def on_start(self, trainer: Trainer) -> None:
        """The untrained network is the baseline of all that follows."""
        config = trainer.config
        held_out = trainer.data.evaluations(config.eval_batches, config.batch)["valid"]
        self._batches = []
        for batch in held_out:
            real = trainer.data.real(batch)
            mask = None if real is None else real.to(config.device)
            self._batches.append(Batch((batch.inputs.to(config.device),), mask=mask))
        if trainer.step == 0 and 0 in self._schedule:
            self._measure(trainer)

    def on_step(self, trainer: Trainer) -> None:
        """At the steps of the schedule, and at the last."""
        if trainer.step in self._schedule or trainer.step == trainer.config.steps:
            self._measure(trainer)

    def _measure(self, trainer: Trainer) -> None:
        layers = saturation(trainer.model, self._batches).layers
        trainer.write(SaturationRow(step=trainer.step, **_row(layer, SaturationRow)) for layer in layers)
        found = heads(trainer.model, self._batches).heads
        trainer.write(HeadRow(step=trainer.step, **_row(head, HeadRow)) for head in found)


def _row(value: Any, kind: type) -> dict[str, Any]:
    return {name: item for name, item in asdict(value).items() if name in kind.__annotations__}


class UpdateObserver(Callback):
    """Attaches the live monitor: sums of parameters, updates and gradients, tensor by tensor."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._monitor: Monitor | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Go on from the step the run is at."""
        options = MonitorOptions(step=trainer.step)
        self._monitor = Monitor(trainer.model, trainer.optimizer, trainer.run.path, self._schedule, options)

    def on_save(self, trainer: Trainer) -> None:
        """Have everything in the run file."""
        if self._monitor is not None:
            self._monitor.flush()

    def on_end(self, trainer: Trainer) -> None:
        """Let go of the optimizer."""
        if self._monitor is not None:
            self._monitor.close()
