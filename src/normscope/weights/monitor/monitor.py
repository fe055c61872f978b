"""Watch a live training run: one line, any loop, any sharding.

The monitor hangs itself on `optimizer.step`. At scheduled steps it copies θ′
before the step, sums θ and Δ after it, and takes the gradients at the end of
backward, before anybody clips them; between scheduled steps it does nothing.
It may fail, but it never fails the training: whatever goes wrong is logged once
and the loop goes on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from normscope._version import __version__
from normscope.schedule import Budget, Schedule, logarithmic
from normscope.weights.monitor.gradients import EndOfBackward, backward_scale, skipped, step_scale
from normscope.weights.monitor.journal import Entry, Journal, Rewind, Scalars, unusable
from normscope.weights.monitor.live_measures import LiveMeasures
from normscope.weights.monitor.monitor_options import MonitorOptions
from normscope.weights.monitor.pace import Pace
from normscope.weights.monitor.publisher import Publisher
from normscope.weights.monitor.recorder import Recorder
from normscope.weights.monitor.sharding import Ranks, inventory, leaves
from normscope.weights.monitor.wrapped_optimizers import optimizers_of
from normscope.weights.sums.statistics import backend

log = logging.getLogger("normscope")


class Monitor:
    """Records a model's parameters, updates and gradients while it trains.

    Make it after the model is wrapped (DDP, FSDP, torch.compile) and the optimizer
    made, on every rank. `optimizer` may be several: a step ends when all have stepped.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        run: str | os.PathLike[str] = "run.db",
        schedule: Schedule | Budget = logarithmic(200),
        options: MonitorOptions = MonitorOptions(),
    ) -> None:
        self.step = options.step
        """Optimizer steps made so far."""
        self.options = options
        self._optimizers = optimizers_of(optimizer)
        ranks = Ranks.now()
        held, left_out = inventory(model)
        owned = {id(item.parameter) for item in held}
        layout = ranks.agree(held, self._problem(run, ranks, owned))
        totals = LiveMeasures(layout.described, options.groups, options.scope)
        meta = {"monitor": self._provenance(schedule, ranks)}
        journal = Journal(run, layout.described, options.stage, left_out, meta)
        self._publisher = Publisher(journal, totals, options) if ranks.rank == 0 else None
        self._recorder = Recorder(layout, ranks, options.updates)
        self._pace = Pace(schedule)
        self._stepped: set[int] = set()
        self._said: set[str] = set()
        self._begun = self._failed = False
        self._scale = 1.0
        self._backward = EndOfBackward(leaves(model), self._gradients_ready)
        self._handles = [o.register_step_pre_hook(self._before) for o in self._optimizers]
        self._handles += [o.register_step_post_hook(self._after) for o in self._optimizers]
        self._aim()

    @property
    def latest(self) -> Mapping[str, float]:
        """Totals and groups of the newest record, under the loggers' keys; empty but on the first rank."""
        return self._publisher.latest if self._publisher else {}

    @property
    def latest_step(self) -> int:
        """The step of `latest`; −1 before there is one."""
        return self._publisher.latest_step if self._publisher else -1

    # -- what a training loop may call ---------------------------------------------

    def log(self, **values: Any) -> None:
        """Record numbers of the step just made (loss=…, tokens=…), if that step is recorded.

        A tensor is only read (and so waited for) when it is.
        """
        if self.latest_step == self.step:
            self.log_at(self.step, values)

    def log_at(self, step: int, values: Mapping[str, Any]) -> None:
        """Record numbers of any step."""
        with self._guard("logging scalars"):
            if self._publisher is not None:
                self._put(Scalars(step, {name: _number(value) for name, value in values.items()}))

    def state_dict(self) -> dict[str, int]:
        """What to keep in a checkpoint so that a resumed run goes on in the same file."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from a checkpoint: records of later steps are replaced."""
        self.step = int(state["step"])
        if self._begun:
            self._put(Rewind(self.step))
        self._pace.rewind(self.step)
        self._aim()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything is in the run file and the loggers; whether it is."""
        return self._publisher is None or self._publisher.flush(timeout)

    def close(self) -> None:
        """Let go of model and optimizer, and write what is left."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._backward.close()
        if self._publisher is not None:
            self._publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- hooks ---------------------------------------------------------------------

    def _gradients_ready(self) -> None:
        start = time.perf_counter()
        with self._local("measuring gradients"):
            self._recorder.measure_gradients("backward")
        self._pace.spend(start)

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._guard("preparing a record"):
            if not self._begun:
                self._begin()
            if not self._due:
                return
            start = time.perf_counter()
            with self._local("copying parameters"):
                self._recorder.before_step(optimizer)
            closure = (len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None
            with self._local("measuring gradients"):
                self._look_at_gradients(optimizer, closure)
            self._pace.spend(start)

    def _look_at_gradients(self, optimizer: Optimizer, closure: bool) -> None:
        """Note the loss scale; where backward gave no sign, take the gradients as they are now."""
        if not self.options.gradients:
            return
        if self._recorder.gradients_at == "backward":
            self._scale = backward_scale(optimizer)
        elif not closure:  # with a closure, backward is still to come
            self._recorder.measure_gradients("step", optimizer, step_scale(optimizer))
            self._backward.listen_to_all()

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._guard("making a record"):
            if skipped(optimizer):
                self._recorder.start()
                return
            start = time.perf_counter()
            self._stepped.add(id(optimizer))
            if self._due:
                with self._local("summing parameters"):
                    self._recorder.after_step(optimizer, keep=self._pace.due(self.step + 2))
            if len(self._stepped) < len(self._optimizers):
                self._pace.spend(start)
                return
            self._stepped.clear()
            self.step += 1
            try:
                if self._due:
                    self._record(self._recorder, start)
            finally:
                self._aim()

    # -- recording -------------------------------------------------------------------

    def _aim(self) -> None:
        """Decide about the coming step."""
        self._due = self._pace.due(self.step + 1)
        self._backward.armed = self._due and self.options.gradients

    def _begin(self) -> None:
        """Before the first step of this process: forget what it replaces, record where it starts."""
        self._begun = True
        self._put(Rewind(self.step))
        if self.step == 0 and self._pace.due(0):
            recorder = Recorder(self._recorder.layout, self._recorder.ranks, updates=False)
            self._record(recorder, time.perf_counter(), first=True)

    def _record(self, recorder: Recorder, start: float, first: bool = False) -> None:
        """Add up over the ranks and publish; all ranks come here at the same steps, whatever failed."""
        with self._local("summing parameters"):
            recorder.finish()
            if recorder.gradients_at == "backward":
                recorder.unscale_gradients(self._scale)
        extra = np.array([float(self._failed), 0.0, 0.0])
        if self._publisher is not None:
            extra[1:] = self._pace.timing(start, self._publisher.delivery_time())
        where, self._failed, self._scale = recorder.gradients_at, False, 1.0
        try:
            record, (failures, cost, elapsed) = recorder.whole(self.step, extra, first)
        finally:
            recorder.start()
        end = time.perf_counter()
        self._pace.learn(self.step, cost, elapsed)
        if failures:
            self._warn("rank", f"the record of step {self.step} is left out: {int(failures)} ranks failed")
        elif self._publisher is not None:
            self._publisher.publish(record, where)
        self._pace.finish(end)

    def _put(self, entry: Entry) -> None:
        if self._publisher is not None:
            self._publisher.put(entry)

    # -- never failing the training -------------------------------------------------

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Whatever is raised inside is logged once and goes no further."""
        try:
            yield
        except Exception as error:
            self._warn(what, f"{what} failed, training goes on: {type(error).__name__}: {error}")

    @contextmanager
    def _local(self, what: str) -> Iterator[None]:
        """Like a guard, and the other ranks hear of it with the record."""
        try:
            yield
        except Exception as error:
            self._failed = True
            self._warn(what, f"{what} failed, training goes on: {type(error).__name__}: {error}")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            log.warning("normscope: %s", text)

    # -- construction ----------------------------------------------------------------

    def _problem(self, run: str | os.PathLike[str], ranks: Ranks, owned: set[int]) -> str | None:
        for optimizer in self._optimizers:
            if not any(id(p) in owned for group in optimizer.param_groups for p in group["params"]):
                return (
                    "the optimizer holds none of the model's parameters: make the optimizer after the model "
                    "is wrapped or moved, and pass the same model to Monitor"
                )
        return unusable(run) if ranks.rank == 0 else None

    def _provenance(self, schedule: Schedule | Budget, ranks: Ranks) -> dict[str, Any]:
        return {
            "normscope": __version__,
            "torch": torch.__version__,
            "kernel": backend(),
            "schedule": str(schedule),
            "ranks": ranks.world,
            "updates": self.options.updates,
            "gradients": self.options.gradients,
        }


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)
