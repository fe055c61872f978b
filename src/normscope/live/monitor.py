"""Record a live training run: one line in any training loop, any sharding.

An error in the monitor never ends the training: it is logged once and training goes on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import torch
from torch import nn
from torch.optim import Optimizer

from normscope._version import __version__
from normscope.live.model.meeting import meet
from normscope.live.model.optimizer_inspection import optimizers_of
from normscope.live.model.ranks import Ranks
from normscope.live.monitor_options import MonitorFields, MonitorOptions, with_fields
from normscope.live.pace import Pace
from normscope.live.publisher import Publisher
from normscope.live.training_watch import TrainingWatch
from normscope.live.writing.journal import Journal
from normscope.live.writing.live_file import claim_run_file
from normscope.live.writing.outbox import TIMEOUT
from normscope.option_checks import check_kind
from normscope.schedule import Budget, Schedule, logarithmic
from normscope.weights.sums.statistics import backend

LOGS = 32
"""Calls of `log` within one step after which it is checked that steps still arrive."""


class Monitor:
    """Records a model's parameters, updates and gradients while it trains.

    Create it on every rank, after the model is wrapped (DDP, FSDP, torch.compile) and
    the optimizer exists. With several optimizers, a step ends when all in use have stepped.
    `model` and `optimizer` are those of the training loop, `run` is the run file to write, `schedule`
    says which steps to record (or a `Budget` how much time to spend), `options` what else; `fields` of
    MonitorOptions may also be given by name, as in `Monitor(model, optimizer, "run.db", updates=False)`.

    >>> import tempfile, torch, normscope as ns
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with ns.Monitor(model, optimizer, folder.name + "/run.db") as monitor:
    ...     for _ in range(2):
    ...         optimizer.zero_grad()
    ...         model(torch.ones(4, 2)).mean().backward()
    ...         optimizer.step()
    ...     print(f"step {monitor.latest_step}: update norm {monitor.latest['normscope/update/total']:.4f}")
    step 2: update norm 0.1732
    >>> folder.cleanup()
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        run: str | os.PathLike[str] = "run.db",
        schedule: Schedule | Budget = logarithmic(200),
        options: MonitorOptions = MonitorOptions(),
        **fields: Unpack[MonitorFields],
    ) -> None:
        check_kind("model", model, nn.Module)
        options = with_fields(options, fields)
        self.options = options
        pace, optimizers, ranks = Pace(schedule, options.step), optimizers_of(optimizer), Ranks.current()
        meet(ranks.rank, ranks.world, options.rank_timeout)
        self._watch = watch = TrainingWatch(model, optimizers, pace, options)
        lock = claim_run_file(run, ranks, watch.subject.layout.infos, options.stage, options.step)
        measures = watch.measures()
        self.scope = measures.scope  # which parameters `latest` counts: body, all, or all (no body)
        meta = {"monitor": self._provenance(schedule, ranks)}
        journal = Journal(run, watch.inventory(), options.stage, meta, lock)
        self._publisher = Publisher(journal, measures, options) if ranks.rank == 0 else None
        self._logged, self._logs = -1, 0
        watch.start(self._publisher)

    @property
    def step(self) -> int:
        """Optimizer steps made so far."""
        return self._watch.step

    @property
    def latest(self) -> Mapping[str, float]:
        """The measures of the newest record, under the loggers' keys; empty on ranks other than 0."""
        return self._publisher.latest if self._publisher else {}

    @property
    def latest_step(self) -> int:
        """The step of `latest`; −1 before the first record."""
        return self._publisher.latest_step if self._publisher else -1

    # -- what a training loop may call ---------------------------------------------

    def log(self, **values: Any) -> None:
        """Record numbers of the step just made (loss=…, tokens=…), if that step is recorded.

        Loggers get them too, under normscope/loss, normscope/tokens, ….
        Reading a tensor waits for the device, so it is read only at recorded steps.
        """
        self._logs = self._logs + 1 if self.step == self._logged else 0
        self._logged = self.step
        if self._logs >= LOGS:
            self._logs = 0
            self._watch.check_steps_arrive()
        if self.latest_step == self.step:
            self.log_at(self.step, values)

    def log_at(self, step: int, values: Mapping[str, Any]) -> None:
        """Record numbers of any step, recorded or not."""
        with self._watch.guard.doing("logging scalars"):
            if self._publisher is not None:
                numbers = {name: _number(value) for name, value in values.items()}
                self._publisher.log(int(step), numbers)

    def state_dict(self) -> dict[str, int]:
        """What to save in a checkpoint, so that a resumed run continues in the same run file.

        What was recorded until now is written first: a process that is killed later has lost nothing before.
        """
        with self._watch.guard.doing("writing before a checkpoint"):
            if self._publisher is not None:
                self._publisher.save()
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a checkpoint: records of later steps are deleted."""
        self._watch.rewind(int(state["step"]))

    def flush(self, timeout: float = TIMEOUT) -> bool:
        """Wait at most `timeout` seconds; return whether everything is in the run file and the loggers."""
        return self._publisher is None or self._publisher.flush(timeout)

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Remove the hooks and write what is left; return whether everything was written."""
        self._watch.check_steps_arrive()
        self._watch.stop()
        return self._publisher is None or self._publisher.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _provenance(self, schedule: Schedule | Budget, ranks: Ranks) -> dict[str, Any]:
        return {
            "normscope": __version__,
            "torch": torch.__version__,
            "kernel": backend(),
            "schedule": str(schedule),
            "ranks": ranks.world,
            "updates": self.options.updates,
            "gradients": self.options.gradients,
            **({"network": str(self.options.network)} if self.options.network else {}),
            **({"attention": self.options.attention} if self.options.attention else {}),
            **({"spectral": str(self.options.spectral)} if self.options.spectral else {}),
        }


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)
