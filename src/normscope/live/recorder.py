"""One rank's part of a record: copy θ′ before the step, sum after it, add up over all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from normscope.live.model.optimizer_inspection import decay_is_coupled, kind_of, momentum_of
from normscope.live.model.sharding import Layout, Ranks, local, local_gradient
from normscope.live.writing.journal import COLUMNS, Record
from normscope.weights.sums.live_sums import DELTA, DOT, INIT, NONFINITE, SUMSQ, copy_into, sums_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

COLUMN = {name: i for i, name in enumerate(COLUMNS)}
UPDATE = [COLUMN["dot"], COLUMN["sumsq_delta"]]
GRADIENT_SUMS = [COLUMN["grad_sumsq"], COLUMN["grad_dot"]]
GRADIENT = [*GRADIENT_SUMS, COLUMN["grad_nonfinite"], COLUMN["gradients"]]
RATES = [COLUMN[name] for name in ("lr", "weight_decay", "kind", "momentum", "coupled", "grouped")]
NOT_MEASURED = [COLUMN[name] for name in ("dot_init", "absmax", "param_group")]


class Snapshot:
    """A copy of θ′, made before the optimizer's step and kept until the sums are made."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Copy the tensors, into the memory of the last copy if that fits."""
        if _formats(self.tensors) != _formats(tensors):
            self.tensors = [torch.empty_like(t, requires_grad=False) for t in tensors]
        copy_into(self.tensors, tensors)

    def release(self) -> None:
        """Free the memory."""
        self.tensors = []


def _formats(tensors: Sequence[Tensor]) -> list[tuple[torch.Size, torch.dtype, torch.device]]:
    return [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]


class Recorder:
    """Measures the parameters of this rank, however they are sharded."""

    def __init__(self, layout: Layout, ranks: Ranks, updates: bool, kinds: Sequence[str] = ()) -> None:
        self.layout, self.ranks, self.updates = layout, ranks, updates
        self._kinds = {kind: float(i) for i, kind in enumerate(kinds)}
        self._position = {id(p): i for i, p in enumerate(layout.parameters)}
        self._plain = not any(isinstance(p, DTensor) or p.is_complex() for p in layout.parameters)
        self._snapshots: dict[int, Snapshot] = {}
        self._groups: dict[int, tuple[list[int], list[Indices]]] = {}
        self.reset()

    def reset(self) -> None:
        """Begin a record: nothing is measured yet."""
        self._values = np.zeros((len(self.layout.parameters), len(COLUMNS)))
        self._summed = np.zeros(len(self._values), dtype=bool)
        self.gradients_at: str | None = None

    def _group_indices(self, optimizer: Optimizer) -> list[Indices]:
        """The parameters of each group; looked up again when a group was added or has grown."""
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        known_sizes, indices = self._groups.get(id(optimizer), ([], []))
        if known_sizes != sizes:
            indices = [self._indices(group["params"]) for group in optimizer.param_groups]
            self._groups[id(optimizer)] = (sizes, indices)
        return indices

    def _indices(self, parameters: Sequence[Tensor]) -> Indices:
        found = [self._position[id(p)] for p in parameters if id(p) in self._position]
        return np.array(found, dtype=np.int64)

    def _optimized(self, optimizer: Optimizer) -> Indices:
        """The parameters that this optimizer updates."""
        return np.concatenate(self._group_indices(optimizer))

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer) -> None:
        """Note learning rate, weight decay and momentum of every group, and copy θ′."""
        kind = self._kinds.get(kind_of(optimizer), np.nan)
        for group, indices in zip(optimizer.param_groups, self._group_indices(optimizer), strict=True):
            rates = float(group.get("lr", np.nan)), float(group.get("weight_decay", 0.0))
            settings = kind, momentum_of(optimizer, group), float(decay_is_coupled(optimizer, group))
            self._values[indices[:, None], RATES] = (*rates, *settings, 1.0)
        if self.updates:
            snapshot = self._snapshots.setdefault(id(optimizer), Snapshot())
            snapshot.take(self._tensors(self._optimized(optimizer)))

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, keep: bool) -> None:
        """Sum the parameters that this optimizer updates; `keep` the memory of θ′ for the next step."""
        snapshot = self._snapshots.get(id(optimizer))
        self._sum(self._optimized(optimizer), snapshot.tensors if snapshot is not None else None)
        if snapshot is not None and not keep:
            snapshot.release()

    @torch.no_grad()
    def measure_gradients(self, when: str, optimizer: Optimizer | None = None, scale: float = 1.0) -> None:
        """‖g‖² and ⟨θ, g⟩ of the current gradients, for one optimizer's parameters or for all."""
        asked = np.arange(len(self._values)) if optimizer is None else self._optimized(optimizer)
        gradients = self._gradients(asked)
        present = asked[[g is not None for g in gradients]]
        self._values[asked[:, None], GRADIENT] = 0.0
        if not len(present):
            return
        sums = sums_of([g for g in gradients if g is not None], None, self._tensors(present))
        sums[:, SUMSQ] /= scale**2
        sums[:, INIT] /= scale
        self._values[present[:, None], GRADIENT[:3]] = sums[:, [SUMSQ, INIT, NONFINITE]]
        self._values[present, COLUMN["gradients"]] = 1.0
        self.gradients_at = when

    def unscale_gradients(self, scale: float) -> None:
        """Divide by the loss scale."""
        self._values[:, GRADIENT_SUMS] /= (scale**2, scale)

    @torch.no_grad()
    def finish(self) -> None:
        """Sum the parameters that no optimizer updates."""
        self._sum(np.flatnonzero(~self._summed), None)

    def combine(self, step: int, extra: Array, first: bool = False) -> tuple[Record, Array]:
        """The record of the whole model and the sum of `extra` over the ranks, by one all-reduce."""
        layout = self.layout
        mine = np.where(layout.counted[:, None], self._values, 0.0)
        mine[:, RATES] = np.where(layout.reported[:, None], self._values[:, RATES], 0.0)
        values = np.zeros((len(layout.infos), len(COLUMNS)))
        values[layout.indices] = mine
        added = self.ranks.add_up(np.concatenate([values.ravel(), extra]))
        values = added[: values.size].reshape(values.shape)
        self._mark_missing(values, first)
        return Record(step, values, first), added[values.size :]

    def _mark_missing(self, values: Array, first: bool) -> None:
        """Write NaN where nothing was measured and where a gradient is not finite."""
        no_gradient = (values[:, COLUMN["gradients"]] == 0) | (values[:, COLUMN["grad_nonfinite"]] > 0)
        values[np.ix_(no_gradient, GRADIENT_SUMS)] = np.nan
        values[np.ix_(values[:, COLUMN["grouped"]] == 0, RATES[:2])] = np.nan
        values[:, NOT_MEASURED] = np.nan
        if first or not self.updates:
            values[:, UPDATE] = np.nan

    def _sum(self, chosen: Indices, previous: Sequence[Tensor] | None) -> None:
        sums = sums_of(self._tensors(chosen), previous)
        columns = [COLUMN["sumsq"], COLUMN["nonfinite"], *UPDATE]
        self._values[chosen[:, None], columns] = sums[:, [SUMSQ, NONFINITE, DOT, DELTA]]
        self._summed[chosen] = True

    def _tensors(self, chosen: Indices) -> list[Tensor]:
        parameters: Sequence[nn.Parameter] = self.layout.parameters
        if self._plain:
            return [parameters[i] for i in chosen]
        return [local(parameters[i]) for i in chosen]

    def _gradients(self, chosen: Indices) -> list[Tensor | None]:
        parameters = self.layout.parameters
        if self._plain:
            return [parameters[i].grad for i in chosen]
        return [local_gradient(parameters[i]) for i in chosen]


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
