"""One rank's part of a record: copy θ′ before the step, sum after it, add up over all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from normscope.live.alarms.record_summary import ForwardLook
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import Layout, local, local_gradient
from normscope.live.model.zero_partitions import is_partitioned
from normscope.live.recording.gradient_sums import GradientSums
from normscope.live.recording.optimizer_part import OptimizerPart
from normscope.live.recording.previous_values import PreviousValues
from normscope.live.recording.record_values import COLUMN, RATES, MeasuredHere, Missing
from normscope.live.writing.journal_entries import Record
from normscope.weights.sums.live_sums import KeptTensors, sums_of
from normscope.weights.sums.statistics import Sums

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

REQUIRES_GRAD = attrgetter("requires_grad")


class Recorder:
    """Measures the parameters of this rank, however they are sharded."""

    def __init__(self, layout: Layout, ranks: Ranks, updates: bool, kinds: Sequence[str] = ()) -> None:
        self.layout, self.ranks, self.updates = layout, ranks, updates
        self.position = {id(p): i for i, p in enumerate(layout.parameters)}
        self._positions: list[int] = layout.indices.tolist()
        in_order = self._positions == list(range(len(layout.infos)))
        self._places = None if in_order else layout.indices
        self._kinds = {kind: float(i) for i, kind in enumerate(kinds)}
        self._plain = not any(map(_is_special, layout.parameters))
        self._parts: dict[int, OptimizerPart] = {}
        self._initial: list[Tensor] | None = None
        self._previous = PreviousValues(len(layout.parameters))
        self.gradients = GradientSums(len(layout.parameters), self._plain, self._tensors, self._gradients)
        size = len(layout.parameters)
        self._sums, self._some_summed = np.zeros((size, len(Sums._fields))), False
        self._summed = np.zeros(size, dtype=bool)
        self.reset()

    def reset(self) -> None:
        """Begin a record: nothing is measured yet."""
        self._whole: Array | None = None  # the sums of all parameters, if one step has updated them all
        if self._some_summed:
            self._sums = np.zeros_like(self._sums)  # the record before keeps its own
            self._summed[:] = False
            self._some_summed = False
        self._previous.begin()
        self.gradients.begin()

    def before_training(self) -> Recorder:
        """A recorder of the same parameters and θ₀, for a record that has no step."""
        first = Recorder(self.layout, self.ranks, updates=False)
        first._initial = self._initial
        return first

    def continue_from(self, before: Recorder) -> None:
        """Take over what another recorder has measured of the parameters that the model still has."""
        known = before.position
        kept = {i: known[id(p)] for i, p in enumerate(self.layout.parameters) if id(p) in known}
        self.gradients.continue_from(before.gradients, kept)
        if before._initial is not None:
            named = dict(zip(before.names(), before._initial, strict=True))
            names = self.names()  # a parameter may have another name now: PEFT's merged layers have
            self.keep_initial({**named, **{names[i]: before._initial[j] for i, j in kept.items()}})

    def names(self) -> list[str]:
        """The names of this rank's parameters."""
        return [self.layout.infos[i].name for i in self.layout.indices.tolist()]

    @torch.no_grad()
    def keep_initial(self, known: Mapping[str, Tensor] | None = None) -> None:
        """Copy θ₀ to the host's memory; `known` are copies of parameters that a changed model has kept."""
        kept = known or {}
        named = zip(self.names(), self._tensors(np.arange(len(self.position))), strict=True)
        self._initial = [
            kept[name]
            if name in kept and kept[name].shape == tensor.shape
            else tensor.detach().to("cpu", copy=True)
            for name, tensor in named
        ]
        self._parts.clear()

    # -- optimizers ----------------------------------------------------------------------

    def part_of(self, optimizer: Optimizer) -> OptimizerPart:
        """What this optimizer updates; looked up again when its groups have changed."""
        part = self._parts.get(id(optimizer))
        if part is None or not part.is_current():
            others = [each for key, each in self._parts.items() if key != id(optimizer)]
            first = sum(len(each.groups) for each in others) if part is None else part.first_group
            part = OptimizerPart.of(optimizer, self.position, self._kinds, first)
            part.tensors = self._tensors(part.indices) if self._plain else None
            part.initial = self._initial_at(part.indices)
            self._parts[id(optimizer)] = part
        return part

    def forget_optimizer(self, optimizer: Optimizer) -> None:
        """The optimizer is no longer in use."""
        self._parts.pop(id(optimizer), None)

    def before_step(self, optimizer: Optimizer) -> None:
        """Copy θ′, unless an earlier step of this record did."""
        part = self.part_of(optimizer)
        if self.updates:
            self._previous.take(part, self._tensors_of(part))

    def use_gradients(self, optimizer: Optimizer) -> None:
        """Note which gradients the step of this optimizer uses; call it after `before_step`."""
        self.gradients.use(optimizer, self._parts[id(optimizer)])

    def after_step(self, optimizer: Optimizer, keep: bool) -> None:
        """Sum the parameters that this optimizer updates, and read its rates; `keep` the memory of θ′."""
        part = self._parts[id(optimizer)]  # as `before_step` has found it
        part.read_rates()  # now: schedule-free optimizers set their rate in the step
        previous = self._previous.of(part.indices) if self.updates else None
        sums = sums_of(self._tensors_of(part), previous, part.initial)
        if part.covers_all:
            self._whole = sums
        else:
            if self._whole is not None:
                self._sums, self._whole = self._whole, None
                self._summed[:] = True
            self._sums[part.where] = sums
            self._summed[part.where] = self._some_summed = True
        if not keep:
            self._previous.free(part.indices)

    def release(self) -> None:
        """Free the copies of θ′ until the next record, if they are large."""
        self._previous.free_if_large()

    # -- the record ------------------------------------------------------------------------

    def finish(self) -> None:
        """Sum the parameters that no optimizer has updated."""
        if self._whole is None:
            rest = np.flatnonzero(~self._summed)
            self._sums[rest] = sums_of(self._tensors(rest), None, self._initial_at(rest))
            self._some_summed = True
        if any(part.covers_all for part in self._parts.values()):
            return
        optimized = np.zeros(len(self._summed), dtype=bool)
        for part in self._parts.values():
            optimized[part.where] = True
        if not optimized.all():
            self.gradients.use_without_step(np.flatnonzero(~optimized))

    def combine(
        self, step: int, extra: Sequence[float], first: bool = False, forward: ForwardLook | None = None
    ) -> tuple[Record, Sequence[float]]:
        """The record of the whole model and the sum of `extra` over the ranks."""
        unknown = self._previous.unknown_at(self.layout.indices)
        measured = MeasuredHere(
            self._sums if self._whole is None else self._whole,
            self.gradients.recorded(),
            [(part.where, part.rates) for part in self._parts.values()],
            Missing(first or not self.updates, self._initial is None, unknown),
            self._places,
            len(self.layout.infos),
        )
        order, frozen = self.gradients.order, self._frozen()
        if self._places is not None:
            order, frozen = ([self._positions[i] for i in chosen] for chosen in (order, frozen))
        if self.ranks.world == 1:
            return Record(step, measured, first, order, frozen, forward), extra
        values, added = self.ranks.combine(
            self.layout, measured.mine(), np.array(extra), RATES, COLUMN["absmax"]
        )
        return Record(step, measured.missing.mark(values), first, order, frozen, forward), added.tolist()

    def _frozen(self) -> list[int]:
        """The parameters that are to get no gradient."""
        trained = list(map(REQUIRES_GRAD, self.layout.parameters))
        return [] if all(trained) else [i for i, each in enumerate(trained) if not each]

    # -- tensors ---------------------------------------------------------------------------

    def _initial_at(self, chosen: Indices) -> KeptTensors | None:
        return None if self._initial is None else KeptTensors([self._initial[i] for i in chosen.tolist()])

    def _tensors_of(self, part: OptimizerPart) -> list[Tensor]:
        return self._tensors(part.indices) if part.tensors is None else part.tensors

    def _tensors(self, chosen: Indices) -> list[Tensor]:
        parameters: Sequence[nn.Parameter] = self.layout.parameters
        if self._plain:
            return [parameters[i] for i in chosen.tolist()]
        return [local(parameters[i]) for i in chosen.tolist()]

    def _gradients(self, chosen: Indices) -> list[Tensor | None]:
        parameters = self.layout.parameters
        if self._plain:
            return [parameters[i].grad for i in chosen.tolist()]
        return [local_gradient(parameters[i]) for i in chosen.tolist()]


def _is_special(parameter: Tensor) -> bool:
    """Whether what is summed is not the tensor itself."""
    return isinstance(parameter, DTensor) or parameter.is_complex() or is_partitioned(parameter)


def sums_now(like: Recorder) -> Array | None:
    """Σθ² of each parameter of the whole model; None if a rank could not measure. Every rank calls this."""
    recorder = Recorder(like.layout, like.ranks, updates=False)
    failed = 0.0
    try:
        recorder.finish()
    except Exception:  # the others wait for this rank's sums
        failed = 1.0
    record, (failures,) = recorder.combine(0, [failed], first=True)
    return None if failures else record.column("sumsq")
