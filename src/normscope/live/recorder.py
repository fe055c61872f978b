"""One rank's part of a record: copy θ′ before the step, sum after it, add up over all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from normscope.live.model.optimizer_inspection import backward_scale, step_scale
from normscope.live.model.sharding import Layout, Ranks, local, local_gradient
from normscope.live.optimizer_part import OptimizerPart
from normscope.live.previous_values import PreviousValues
from normscope.live.writing.journal import COLUMNS, Record
from normscope.weights.sums.live_sums import INIT, NONFINITE, SUMSQ, Tensors, sums_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

COLUMN = {name: i for i, name in enumerate(COLUMNS)}
SUMS = slice(COLUMN["sumsq"], COLUMN["nonfinite"] + 1)
GRADIENT = slice(COLUMN["grad_sumsq"], COLUMN["gradients"] + 1)
RATES = slice(COLUMN["lr"], COLUMN["grouped"] + 1)
UPDATE = [COLUMN["dot"], COLUMN["sumsq_delta"]]
GRADIENT_SUMS = [COLUMN["grad_sumsq"], COLUMN["grad_dot"]]


class Recorder:
    """Measures the parameters of this rank, however they are sharded.

    Gradients are measured when backward ends (`pending`), and become those of an optimizer when its step
    begins (`used`): a later backward pass through the same parameters does not change them.
    """

    def __init__(self, layout: Layout, ranks: Ranks, updates: bool, kinds: Sequence[str] = ()) -> None:
        self.layout, self.ranks, self.updates = layout, ranks, updates
        self.position = {id(p): i for i, p in enumerate(layout.parameters)}
        self._kinds = {kind: float(i) for i, kind in enumerate(kinds)}
        self._plain = not any(isinstance(p, DTensor) or p.is_complex() for p in layout.parameters)
        self._parts: dict[int, OptimizerPart] = {}
        self._initial: Sequence[Tensor] | None = None
        self._pending = np.zeros((len(layout.parameters), 4))
        self._previous = PreviousValues(len(layout.parameters))
        self.reset()

    def reset(self) -> None:
        """Begin a record: nothing is measured yet."""
        size = len(self.layout.parameters)
        self._sums = np.zeros((size, 6))
        self._used = np.zeros((size, 4))
        self._new = np.zeros(size, dtype=bool)
        self._summed = np.zeros(size, dtype=bool)
        self._previous.begin()
        self.gradients_at: str | None = None
        self.order: Sequence[int] = ()

    def before_training(self) -> Recorder:
        """A recorder of the same parameters and θ₀, for a record that has no step."""
        first = Recorder(self.layout, self.ranks, updates=False)
        first._initial = self._initial
        return first

    def continue_from(self, before: Recorder) -> None:
        """Take over what another recorder has measured of the parameters that the model still has.

        The gradients of new parameters were made before they were known: they are left out of this record.
        """
        known = before.position
        kept = [(i, known[id(p)]) for i, p in enumerate(self.layout.parameters) if id(p) in known]
        if kept:
            now, then = np.array(kept).T
            self._pending[now] = before._pending[then]
        self._new = ~np.isin(np.arange(len(self._new)), [i for i, _ in kept])
        self.order = ()
        if before.initial is not None:
            self.keep_initial(before.initial)

    def forget_gradients(self) -> None:
        """Drop what was measured of gradients that no step used."""
        self._pending[:] = 0.0

    def part_of(self, optimizer: Optimizer) -> OptimizerPart:
        """What this optimizer updates; looked up again when its groups have changed."""
        part = self._parts.get(id(optimizer))
        if part is None or not part.is_current():
            before = [each for each in self._parts.values() if each.optimizer() is not optimizer]
            first = sum(len(each.groups) for each in before)
            part = OptimizerPart.of(optimizer, self.position, self._kinds, first, self._tensors)
            self._parts[id(optimizer)] = part
        return part

    def forget_optimizer(self, optimizer: Optimizer) -> None:
        """The optimizer is no longer in use."""
        self._parts.pop(id(optimizer), None)

    # -- θ₀ --------------------------------------------------------------------------

    @torch.no_grad()
    def keep_initial(self, known: dict[str, Tensor] | None = None) -> None:
        """Copy θ₀ to the host's memory; `known` are copies of parameters that a changed model has kept."""
        named = zip(self.names(), self._tensors(np.arange(len(self.position))), strict=True)
        kept = known or {}
        self._initial = [
            kept[name]
            if name in kept and kept[name].shape == tensor.shape
            else tensor.detach().to("cpu", copy=True)
            for name, tensor in named
        ]

    @property
    def initial(self) -> dict[str, Tensor] | None:
        """The copies of θ₀ by name; None if they are not kept."""
        return None if self._initial is None else dict(zip(self.names(), self._initial, strict=True))

    def names(self) -> list[str]:
        """The names of this rank's parameters."""
        return [self.layout.infos[i].name for i in self.layout.indices.tolist()]

    # -- a step ------------------------------------------------------------------------

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer) -> None:
        """Read the rates of every group, and copy θ′ unless an earlier step of this record did."""
        part = self.part_of(optimizer)
        part.read_rates()
        if self.updates:
            self._previous.take(part.indices, self._tensors_of(part))

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, keep: bool) -> None:
        """Sum the parameters that this optimizer updates; `keep` the memory of θ′."""
        part = self.part_of(optimizer)
        previous = self._previous.of(part.indices) if self.updates else None
        self._sum(part.indices, self._tensors_of(part), previous)
        if not keep:
            self._previous.free(part.indices)

    def release(self) -> None:
        """Free the copies of θ′."""
        self._previous.free()

    # -- gradients -----------------------------------------------------------------------

    @torch.no_grad()
    def measure_gradients(self, touched: Sequence[int]) -> None:
        """‖g‖² and ⟨θ, g⟩ of the gradients that a backward pass has changed, in its order."""
        self.order = touched
        self._measure(np.array(sorted(set(touched)), dtype=np.int64))

    @torch.no_grad()
    def use_gradients(self, optimizer: Optimizer) -> None:
        """What the step of this optimizer uses; call it when the step begins.

        A gradient that no backward pass was seen to make (assigned by hand, left from an earlier step) is
        measured now, after any clipping.
        """
        part = self.part_of(optimizer)
        chosen = part.indices
        present = np.array([g is not None for g in self._gradients(chosen)], dtype=bool)
        seen = self._pending[chosen, 3] > 0
        scale = backward_scale(optimizer) if seen.any() else 1.0
        if scale != 1.0:
            self._pending[chosen, :2] /= (scale**2, scale)
        present &= ~self._new[chosen]
        late = chosen[present & ~seen]
        if len(late):
            self._measure(late, step_scale(optimizer))
        if present.any():
            self.gradients_at = "backward" if seen.any() or self.gradients_at == "backward" else "step"
        self._used[chosen] = np.where(present[:, None], self._pending[chosen], 0.0)
        self._pending[chosen] = 0.0

    def _measure(self, asked: Indices, scale: float = 1.0) -> None:
        gradients = self._gradients(asked)
        present = asked[[g is not None for g in gradients]]
        self._pending[asked] = 0.0
        if not len(present):
            return
        sums = sums_of([g for g in gradients if g is not None], None, self._tensors(present))
        found = np.empty((len(present), 4))
        found[:, 0] = sums[:, SUMSQ] / scale**2
        found[:, 1] = sums[:, INIT] / scale
        found[:, 2] = sums[:, NONFINITE]
        found[:, 3] = 1.0
        self._pending[present] = found

    def nonfinite_gradients(self) -> bool:
        """Whether a gradient that a step will use, or used, has NaN or infinite values."""
        return bool(self._pending[:, 2].any() or self._used[:, 2].any())

    # -- the record ------------------------------------------------------------------------

    @torch.no_grad()
    def finish(self) -> None:
        """Sum the parameters that no optimizer has updated."""
        rest = np.flatnonzero(~self._summed)
        if len(rest):
            self._sum(rest, self._tensors(rest), None)
        without = np.flatnonzero(~self._grouped())
        self._used[without] = self._pending[without]
        self._pending[without] = 0.0

    def combine(self, step: int, extra: Array, first: bool = False) -> tuple[Record, Array]:
        """The record of the whole model and the sum of `extra` over the ranks."""
        layout = self.layout
        mine = np.empty((len(self._sums), len(COLUMNS)))
        mine[:, SUMS], mine[:, GRADIENT], mine[:, RATES] = self._sums, self._used, self._rates()
        values, extra = self.ranks.combine(layout, mine, extra, slice(RATES.start, None), COLUMN["absmax"])
        self._mark_missing(values, first)
        order = layout.indices[list(self.order)] if len(self.order) else ()
        return Record(step, values, first, tuple(order)), extra

    def _mark_missing(self, values: Array, first: bool) -> None:
        """Write NaN where nothing was measured and where a gradient is not finite."""
        no_gradient = (values[:, COLUMN["gradients"]] == 0) | (values[:, COLUMN["grad_nonfinite"]] > 0)
        if no_gradient.any():
            values[np.ix_(no_gradient, GRADIENT_SUMS)] = np.nan
        ungrouped = values[:, COLUMN["grouped"]] == 0
        if ungrouped.any():
            values[ungrouped, COLUMN["lr"] : COLUMN["weight_decay"] + 1] = np.nan
        if first or not self.updates:
            values[:, UPDATE] = np.nan
        elif self._previous.unknown.any():
            values[self.layout.indices[self._previous.unknown][:, None], UPDATE] = np.nan
        if self._initial is None:
            values[:, COLUMN["dot_init"]] = np.nan

    def _rates(self) -> Array:
        parts = list(self._parts.values())
        found = np.zeros((len(self._sums), RATES.stop - RATES.start))
        for part in parts:
            found[part.indices] = part.rates
        return found

    def _grouped(self) -> NDArray[np.bool_]:
        found = np.zeros(len(self._sums), dtype=bool)
        for part in self._parts.values():
            found[part.indices] = True
        return found

    def _sum(self, chosen: Indices, tensors: Tensors, previous: Tensors | None) -> None:
        initial = None if self._initial is None else [self._initial[i] for i in chosen.tolist()]
        self._sums[chosen] = sums_of(tensors, previous, initial)
        self._summed[chosen] = True

    # -- tensors ---------------------------------------------------------------------------

    def _tensors_of(self, part: OptimizerPart) -> Tensors:
        return part.tensors if self._plain else self._tensors(part.indices)

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


def sums_now(like: Recorder) -> Array | None:
    """Σθ² of each parameter of the whole model; None if a rank could not measure. Every rank calls this."""
    recorder = Recorder(like.layout, like.ranks, updates=False)
    failed = 0.0
    try:
        recorder.finish()
    except Exception:  # the others wait for this rank's sums
        failed = 1.0
    record, (failures,) = recorder.combine(0, np.array([failed]), first=True)
    return None if failures else record.column("sumsq")
