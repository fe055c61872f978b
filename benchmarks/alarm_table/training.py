"""A small training that a fault can be put into, watched by a monitor whose alarms are collected."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

import normscope as ns
from normscope.schedule import Schedule


@dataclass
class Training:
    """What a loop needs; `losses` gives the loss of a step for each optimizer that makes one."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    losses: Sequence[Callable[[int], Tensor]]
    rate: Callable[[int], float] = lambda step: 1.0
    """The learning rate of a step, relative to that of the optimizers."""
    clip: float | None = None
    accumulate: int = 1
    loss_factor: float = 1.0
    """What a fault multiplies the loss with."""
    ascends: bool = False
    """Whether a fault makes the optimizers maximise the loss."""
    base: list[list[float]] = field(default_factory=list)

    def step(self, number: int) -> float:
        """One step of every optimizer; returns the loss of the first."""
        self.base = self.base or [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        shown = 0.0
        for i, (optimizer, loss) in enumerate(zip(self.optimizers, self.losses, strict=True)):
            for group, lr in zip(optimizer.param_groups, self.base[i], strict=True):
                group["lr"] = lr * self.rate(number)
            optimizer.zero_grad()
            for part in range(self.accumulate):
                value = self.loss_factor * loss(self.accumulate * number + part) / self.accumulate
                (-value if self.ascends else value).backward()
                shown += value.item() if i == 0 else 0.0
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            optimizer.step()
        return shown


EVERY_STEP = ns.every(1)
Fault = Callable[[Training, int], None]
"""Called before each step with its number, counted from the step at which the fault begins."""


@dataclass(frozen=True)
class Case:
    """A training to run: how it is built from a seed, how long, and at which steps it is recorded."""

    name: str
    build: Callable[[int], Training]
    steps: int = 200
    schedule: Schedule = EVERY_STEP
    seed: int = 0
    fault: Fault | None = None
    begins: int = 0
    logged: bool = True
    """Whether the loop logs its loss."""
    heads: Mapping[str, Any] = field(default_factory=dict)
    """What the monitor is told to see attention: attention="observe", or network= and batch=."""

    def with_seed(self, seed: int) -> Case:
        """The same training from another seed."""
        return replace(self, seed=self.seed + seed)


@dataclass(frozen=True)
class Outcome:
    """The alarms of a training, each with the number of records from the beginning of the fault."""

    case: Case
    alarms: Sequence[tuple[ns.Alarm, int]]

    def after(self, kinds: Sequence[str]) -> int | None:
        """Records from the beginning of the fault to the first alarm of these kinds; None without one."""
        counts = [records for alarm, records in self.alarms if records > 0 and alarm.kind in kinds]
        return min(counts, default=None)


class _Failures(logging.Handler):
    """Keeps what the monitor logs about its own failures: a training that was not judged is not silent."""

    def __enter__(self) -> Self:
        self.messages: list[str] = []
        logging.getLogger("normscope").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("normscope").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if " failed" in record.getMessage():
            self.messages.append(record.getMessage())


def run(case: Case) -> Outcome:
    """Train, and collect the alarms."""
    torch.manual_seed(case.seed)
    training = case.build(case.seed)
    alarms: list[ns.Alarm] = []
    with tempfile.TemporaryDirectory() as folder, _Failures() as failures:
        path = Path(folder) / "run.db"
        options = {"on_alarm": alarms.append, **case.heads}
        with ns.Monitor(training.model, [*training.optimizers], path, case.schedule, **options) as monitor:
            for step in range(1, case.steps + 1):
                if case.fault is not None and step >= case.begins:
                    case.fault(training, step - case.begins)
                loss = training.step(step)
                if case.logged:
                    monitor.log(loss=loss)
        if failures.messages:
            raise RuntimeError(f"the monitor failed: {failures.messages}")
    recorded = list(case.schedule.steps(case.steps))
    counted = [
        (a, sum(1 for s in recorded if case.begins <= s <= a.step) if case.begins else 0) for a in alarms
    ]
    return Outcome(case, counted)
