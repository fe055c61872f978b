"""Record a live training run: one line in any training loop, any sharding.

The monitor registers hooks on `optimizer.step`. At scheduled steps it copies θ′
before the step, sums θ and Δ after it, and measures the gradients at the end of
backward, before they are clipped; at all other steps it does nothing. An error in
the monitor never ends the training: it is logged once and training goes on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, Unpack

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from normscope._version import __version__
from normscope.errors import NormscopeError, UsageError
from normscope.live.gradients import EndOfBackward
from normscope.live.live_measures import LiveMeasures
from normscope.live.model.optimizer_inspection import (
    backward_scale,
    kind_of,
    optimizers_of,
    skips_step,
    step_scale,
    updates_any,
)
from normscope.live.model.sharding import Ranks, gradient_leaves, local_parameters, tied_names
from normscope.live.monitor_options import MonitorOptions, MonitorFields, with_fields
from normscope.live.pace import Pace
from normscope.live.publisher import Publisher
from normscope.live.recorder import Recorder, sums_now
from normscope.live.writing.journal import Journal, JournalEntry, Scalars
from normscope.live.writing.live_file import claim_run_file
from normscope.live.writing.outbox import TIMEOUT
from normscope.live.writing.resuming import Rewind
from normscope.option_checks import check_kind
from normscope.schedule import Budget, Schedule, logarithmic
from normscope.weights.sums.statistics import backend
from normscope.weights.tensor_rows import tensor_rows

log = logging.getLogger("normscope")


class Monitor:
    """Records a model's parameters, updates and gradients while it trains.

    Create it on every rank, after the model is wrapped (DDP, FSDP, torch.compile) and
    the optimizer exists. With several optimizers, a step ends when all have stepped.
    `model` and `optimizer` are those of the training loop, `run` is the run file to write, `schedule`
    says which steps to record (or a `Budget` how much time to spend), `options` what else; a field of
    MonitorOptions may also be given by itself, as in `Monitor(model, optimizer, "run.db", updates=False)`.

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
        self.step = options.step
        """Optimizer steps made so far."""
        self.options = options
        self._pace = Pace(schedule, options.step)
        self._optimizers = optimizers_of(optimizer)
        ranks = Ranks.current()
        mine, skipped = local_parameters(model)
        layout = ranks.agree(mine, self._problem({id(item.parameter) for item in mine}))
        lock = claim_run_file(run, ranks, layout.infos, options.stage, options.step)
        kinds = ranks.union(kind_of(optimizer) for optimizer in self._optimizers)
        tensors = tensor_rows(layout.infos, tied_names(layout.infos), known={})
        measures = LiveMeasures(tensors, options.groups, options.scope)
        self.scope = measures.scope  # which parameters `latest` counts: body, all, or all (no body)
        meta = {"monitor": self._provenance(schedule, ranks)}
        journal = Journal(run, layout.infos, options.stage, skipped, meta, lock, kinds)
        self._publisher = Publisher(journal, measures, options) if ranks.rank == 0 else None
        self._recorder = Recorder(layout, ranks, options.updates, kinds)
        self._stepped: set[int] = set()
        self._warned: set[str] = set()
        self._begun, self._failed, self._scale = False, False, 1.0
        self._backward = EndOfBackward(gradient_leaves(model), self._gradients_ready)
        self._handles = [o.register_step_pre_hook(self._before) for o in self._optimizers]
        self._handles += [o.register_step_post_hook(self._after) for o in self._optimizers]
        self._plan_step()

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

        Reading a tensor waits for the device, so it is read only at recorded steps.
        """
        if self.latest_step == self.step:
            self.log_at(self.step, values)

    def log_at(self, step: int, values: Mapping[str, Any]) -> None:
        """Record numbers of any step, recorded or not."""
        with self._guard("logging scalars"):
            if self._publisher is not None:
                self._put(Scalars(int(step), {name: _number(value) for name, value in values.items()}))

    def state_dict(self) -> dict[str, int]:
        """What to save in a checkpoint, so that a resumed run continues in the same run file.

        What was recorded until now is written first: a process that is killed later has lost nothing before.
        """
        with self._guard("writing before a checkpoint"):
            if self._publisher is not None:
                self._publisher.save()
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a checkpoint: records of later steps are deleted."""
        self.step = int(state["step"])
        if self._begun:
            self._put(Rewind(self.step))
        self._pace.rewind(self.step)
        self._plan_step()

    def flush(self, timeout: float = TIMEOUT) -> bool:
        """Wait at most `timeout` seconds; return whether everything is in the run file and the loggers."""
        return self._publisher is None or self._publisher.flush(timeout)

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Remove the hooks and write what is left; return whether everything was written."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._backward.close()
        return self._publisher is None or self._publisher.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- hooks ---------------------------------------------------------------------

    def _gradients_ready(self) -> None:
        start = time.perf_counter()
        with self._guard("measuring gradients", in_record=True):
            self._recorder.measure_gradients("backward")
        self._pace.spend(start)

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._guard("preparing a record"):
            if not self._begun:
                self._begin()
            if not self._due:
                return
            start = time.perf_counter()
            with self._guard("copying parameters", in_record=True):
                self._recorder.before_step(optimizer)
            closure = (len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None
            with self._guard("measuring gradients", in_record=True):
                self._check_gradients(optimizer, closure)
            self._pace.spend(start)

    def _check_gradients(self, optimizer: Optimizer, closure: bool) -> None:
        """Note the loss scale; if no backward pass was observed, measure the gradients as they are now."""
        if not self.options.gradients:
            return
        if self._recorder.gradients_at == "backward":
            self._scale = backward_scale(optimizer)
        elif not closure:  # with a closure, backward is still to come
            self._recorder.measure_gradients("step", optimizer, step_scale(optimizer))
            self._backward.hook_all()

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._guard("making a record"):
            if skips_step(optimizer):
                self._recorder.reset()
                return
            start = time.perf_counter()
            self._stepped.add(id(optimizer))
            if self._due:
                with self._guard("summing parameters", in_record=True):
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
                self._plan_step()

    # -- recording -------------------------------------------------------------------

    def _plan_step(self) -> None:
        """Decide whether the next step will be recorded."""
        self._due = self._pace.due(self.step + 1)
        self._backward.armed = self._due and self.options.gradients

    def _begin(self) -> None:
        """Before the first step of this process: delete later records, and record the state at step 0."""
        self._begun = True
        self._put(Rewind(self.step, sums_now(self._recorder) if self.step else None))
        if self.step == 0 and self._pace.due(0):
            recorder = Recorder(self._recorder.layout, self._recorder.ranks, updates=False)
            self._record(recorder, time.perf_counter(), first=True)

    def _record(self, recorder: Recorder, start: float, first: bool = False) -> None:
        """Add up over the ranks and publish; every rank calls this at the same steps, even if it failed."""
        with self._guard("summing parameters", in_record=True):
            recorder.finish()
            if recorder.gradients_at == "backward":
                recorder.unscale_gradients(self._scale)
        extra = np.array([float(self._failed), 0.0, 0.0])
        if self._publisher is not None:
            extra[1:] = self._pace.timing(start, self._publisher.delivery_time())
        gradients_at, self._failed, self._scale = recorder.gradients_at, False, 1.0
        try:
            record, (failures, cost, elapsed) = recorder.combine(self.step, extra, first)
        finally:
            recorder.reset()
        end = time.perf_counter()
        self._pace.learn(self.step, cost, elapsed)
        if failures:
            where = f"on {int(failures)} of {recorder.ranks.world} ranks"
            self._warn("rank", f"step {self.step} is not recorded, because measuring failed {where}")
        elif self._publisher is not None:
            self._publisher.publish(record, gradients_at)
        self._pace.finish(end)

    def _put(self, entry: JournalEntry) -> None:
        if self._publisher is not None:
            self._publisher.put(entry)

    # -- never failing the training -------------------------------------------------

    @contextmanager
    def _guard(self, action: str, in_record: bool = False) -> Iterator[None]:
        """Log an exception once instead of raising it; with `in_record`, the record counts as failed."""
        try:
            yield
        except Exception as error:
            self._failed = self._failed or in_record
            self._warn(action, f"{action} failed, training goes on: {type(error).__name__}: {error}")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.warning("normscope: %s", text)

    # -- construction ----------------------------------------------------------------

    def _problem(self, parameters: set[int]) -> NormscopeError | None:
        """Why this rank cannot be monitored; all ranks raise it, or the others would wait for this one."""
        if all(updates_any(optimizer, parameters) for optimizer in self._optimizers):
            return None
        return UsageError(
            "the optimizer has none of the model's parameters: create the optimizer after the model "
            "is wrapped or moved, and pass the same model to Monitor"
        )

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
