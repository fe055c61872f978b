"""Follow a training loop step by step: when a step begins and ends, and what is measured in it.

At scheduled steps θ′ is copied before the step, θ and Δ are summed after it, and the gradients are
measured at the end of backward, before they are clipped; at all other steps nothing is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from normscope.live.guard import Guard
from normscope.live.hooks.step_cycle import StepCycle
from normscope.live.hooks.step_hooks import StepHooks, with_closure
from normscope.live.live_measures import LiveMeasures
from normscope.live.model.optimizer_inspection import kind_of, skips_step, updated_by
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import tied_names
from normscope.live.model.step_arrivals import StepArrivals
from normscope.live.model.wrapped_optimizers import wrapper_around
from normscope.live.monitor_options import MonitorOptions
from normscope.live.monitored_model import MonitoredModel
from normscope.live.pace import Pace
from normscope.live.probing.network_watch import NetworkWatch
from normscope.live.publisher import Publisher
from normscope.live.recording.rate_watch import RateWatch
from normscope.live.recording.recorder import Recorder, sums_now
from normscope.live.spectral.spectral_watch import SpectralWatch
from normscope.live.writing.journal_entries import JournalEntry, ParameterInventory, RateChanges
from normscope.live.writing.resuming import Rewind
from normscope.weights.tensor_rows import tensor_rows
from normscope.words import some


class TrainingWatch:
    """Measures a model at the steps of its optimizers; every rank has one and they act alike."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[Optimizer], pace: Pace, options: MonitorOptions
    ) -> None:
        self.step, self.options, self.pace = options.step, options, pace
        self.guard, self.ranks = Guard(), Ranks.current()
        self._cycle = StepCycle(optimizers)
        self.subject = self._look_at(model)
        self._network = NetworkWatch(model, self.ranks, self.guard, options, self.subject.layout.infos)
        self._spectra = SpectralWatch(self.ranks, self.guard, pace.spend, options.spectral)
        self._spectra.look_at(self.subject.model, self.subject.layout)
        self.publisher: Publisher | None = None
        self.begun = self._stale = self._armed = False
        self._arrivals = StepArrivals(self.subject.layout.parameters, self.step)
        self._rates = RateWatch()

    def start(self, publisher: Publisher | None) -> None:
        """Register the hooks; records go to the publisher, which only rank 0 has."""
        self.publisher = publisher
        self._hooks = StepHooks(self._before, self._after, self._other_stepped)
        for optimizer in self._cycle.optimizers:
            self._hooks.add(optimizer)
        self._plan_step()

    def stop(self) -> None:
        """Remove the hooks."""
        self._hooks.close()
        self._network.stop()
        self.subject.disarm()

    def rewind(self, step: int) -> None:
        """Training continues from this step."""
        self.step = step
        self._rates.forget()
        if self.begun:
            self._put(Rewind(step))
        self.pace.rewind(step)
        self._plan_step()

    def measures(self) -> LiveMeasures:
        """What groups the records of this model for loggers and alarms."""
        infos = self.subject.layout.infos
        tensors = tensor_rows(infos, tied_names(infos), known={})
        number = len(self._cycle.optimizers)
        return LiveMeasures(tensors, self.options.groups, self.options.scope, number)

    def inventory(self) -> ParameterInventory:
        """The parameters that records are about."""
        return ParameterInventory(self.subject.layout.infos, self.subject.skipped, self.subject.kinds)

    def check_steps_arrive(self) -> None:
        """Warn if the parameters change again and again and no step of a known optimizer is seen."""
        if self._arrivals.missing(self.step):
            self.guard.warn(
                f"the parameters have changed since step {self.step}, but no optimizer was seen to step, so "
                "nothing is recorded: pass the optimizer that trains the model, a torch.optim.Optimizer, to "
                "Monitor"
            )

    # -- hooks ---------------------------------------------------------------------

    def _gradients_ready(self, reached: Sequence[int]) -> None:
        start = time.perf_counter()
        with self.guard.doing("measuring gradients", in_record=True):
            self.subject.recorder.gradients.measure(reached)
        self.pace.spend(start)

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.begun and not self._due:
            return None
        with self.guard.doing("preparing a record"):
            if not self.begun:
                around = wrapper_around(optimizer)
                self._begin(unchanged=around is None)
                if around is not None:
                    self._hooks.ignore(optimizer)
                    self._other_stepped(around)
                    return None
            if not self._due:
                return None
            start = time.perf_counter()
            if self.ranks.world == 1 and (self._stale or self.subject.changed()):
                self._follow()
            with self.guard.doing("copying parameters", in_record=True):
                self.subject.recorder.before_step(optimizer)
            changed = self._gradients_of(optimizer, args, kwargs) if self.options.gradients else None
            self.pace.spend(start)
            return changed
        return None

    def _gradients_of(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Settle which gradients the step uses: now, or after the first call of its closure."""

        def settle() -> None:
            with self.guard.doing("measuring gradients", in_record=True):
                self.subject.recorder.use_gradients(optimizer)

        told = with_closure(args, kwargs, settle)
        if told is None:
            settle()
        return told

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self.guard.doing("making a record"):
            recorder = self.subject.recorder
            if skips_step(optimizer):
                recorder.reset()
                recorder.gradients.forget()
                self._network.plan(self._due)
                return
            self._note_rates()
            start = time.perf_counter()
            if self._due:
                with self.guard.doing("summing parameters", in_record=True):
                    # An optimizer that steps inside backward has few tensors, and memory is scarce there.
                    recorder.after_step(optimizer, keep=torch._C._current_graph_task_id() < 0)
            self._count_step(optimizer, start)

    def _count_step(self, optimizer: Optimizer, start: float) -> None:
        """End a step of the training if this was its last optimizer, and record it if it is due."""
        ended = self._cycle.stepped(optimizer)
        for resting in () if ended else self._cycle.rests():
            ended = True
            self.guard.warn(
                f"{kind_of(resting)}, one of {len(self._cycle.optimizers)} optimizers, has not stepped for "
                f"{self._cycle.PATIENCE} steps of another: steps are counted without it until it steps again"
            )
        if not ended:
            self.pace.spend(start)
            return
        self._cycle.end()
        self.step += 1
        self._arrivals.stepped(self.step)
        try:
            if self._due:
                self._record(self.subject.recorder, start)
        finally:
            self._network.after(self.step, self._due, self.publisher)
            self._spectra.after(self.step, self._due, self.publisher)
            self._plan_step()

    def _other_stepped(self, optimizer: Optimizer) -> None:
        """An optimizer that was not passed to the monitor has stepped: follow it if it trains the model."""
        with self.guard.doing("following another optimizer"):
            recorder = self.subject.recorder
            in_model = {id(p) for p in self.subject.model.parameters()}  # as it is now
            mine = in_model & updated_by(optimizer)
            if not mine:
                recorder.forget_optimizer(optimizer)
                self._hooks.ignore(optimizer)
                return
            known = self._cycle.optimizers
            replaced = [each for each in known if mine >= in_model & updated_by(each)]
            for each in replaced:
                self._cycle.remove(each)
                recorder.forget_optimizer(each)
            self._hooks.add(optimizer)
            self._cycle.add(optimizer)
            self._stale = True
            how = "instead of the one before" if replaced else "and was not passed to the monitor"
            self.guard.warn(
                f"since step {self.step + 1}, {kind_of(optimizer)} updates the model {how}: it is recorded "
                "from its next step on"
            )
            self._due = False
            self._count_step(optimizer, time.perf_counter())

    # -- recording -------------------------------------------------------------------

    def _plan_step(self) -> None:
        """Decide whether the next step is recorded; until then, no hooks and no large copies are kept."""
        self._due = self.pace.due(self.step + 1)
        if self._due:
            self.subject.arm(self.options.gradients, self.options.alarms)
        elif self._armed:
            self.subject.disarm()
            self.subject.recorder.release()
        self._armed = self._due
        self._network.plan(self._due)

    def _begin(self, unchanged: bool = True) -> None:
        """Before the first step of this process: delete later records, and record the state at step 0.

        Not that state, if a wrapper around the optimizer has changed it for this step.
        """
        self.begun = True
        recorder = self.subject.recorder
        self._put(Rewind(self.step, sums_now(recorder) if self.step and unchanged else None))
        if self.step == 0 and unchanged and self.options.initial:
            recorder.keep_initial()
        if self.step == 0 and unchanged and self.pace.due(0):
            self._record(recorder.before_training(), time.perf_counter(), first=True)
        if self.step == 0:
            self._network.after(self.step, False, self.publisher)
            self._spectra.after(self.step, unchanged and self.pace.due(0), self.publisher)

    def _record(self, recorder: Recorder, start: float, first: bool = False) -> None:
        """Add up over the ranks and publish; every rank calls this at the same steps, even if it failed."""
        with self.guard.doing("summing parameters", in_record=True):
            recorder.finish()
        changed = self.ranks.world > 1 and (self._stale or self.subject.changed())
        extra = [float(self.guard.failed), float(changed), 0.0, 0.0]
        if self.publisher is not None and self.pace.by_budget:
            extra[2:] = self.pace.timing(start, self.publisher.delivery_time())
        gradients_at, self.guard.failed = recorder.gradients.when, False
        try:
            look = None if first else self.subject.forward.take()
            record, (failures, changes, cost, elapsed) = recorder.combine(self.step, extra, first, look)
        finally:
            recorder.reset()
        end = time.perf_counter()
        self.pace.learn(self.step, cost, elapsed)
        if failures or changes:
            why = "measuring failed" if failures else "the model or its optimizers have changed"
            where = f"on {int(failures or changes)} of {self.ranks.world} ranks"
            self.guard.warn(f"step {self.step} is not recorded, because {why} {where}", key=why)
        elif self.publisher is not None:
            self.publisher.publish(record, gradients_at)
        if changes:
            self._follow()
        self.pace.finish(end)

    def _note_rates(self) -> None:
        if self.publisher is not None:
            rows = self._rates.rows(self._cycle.optimizers, self.step + 1, self._due)
            if rows:
                self._put(RateChanges(rows))

    def _put(self, entry: JournalEntry) -> None:
        if self.publisher is not None:
            self.publisher.put(entry)

    # -- a model that changes ----------------------------------------------------------

    def _look_at(self, model: nn.Module) -> MonitoredModel:
        optimizers, updates = self._cycle.optimizers, self.options.updates
        return MonitoredModel(model, optimizers, self.ranks, updates, self._gradients_ready)

    def _follow(self) -> None:
        """Go on with the model as it is now; every rank calls this at the same step."""
        before, self._stale = self.subject, False
        self._rates.forget()
        now = self._look_at(before.model)
        before.disarm()
        now.recorder.continue_from(before.recorder)
        self.subject, self._armed = now, True  # what it holds is released at the next step
        self._arrivals = StepArrivals(now.layout.parameters, self.step)
        self._network.changed()
        self._spectra.look_at(before.model, now.layout)
        self._put(self.inventory())
        if self.publisher is not None:
            self.publisher.measure_with(self.measures())
        if differences := now.differences(before):
            lost = now.untrained(self._cycle.optimizers, before)
            unknown = f" (no optimizer updates {some(lost)})" if lost else ""
            self.guard.warn(
                f"the model has changed before step {self.step + 1}: {'; '.join(differences)}{unknown}; "
                "it is recorded as it is now"
            )
