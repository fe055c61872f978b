"""One rank's part in a record: copies θ′ before the step, sums after it, and adds up with the other ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from normscope.weights.monitor.journal import COLUMNS, Record
from normscope.weights.monitor.sharding import Layout, Ranks, local, local_gradient
from normscope.weights.sums.live_sums import DELTA, DOT, INIT, NONFINITE, SUMSQ, copy_into, sums_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

AT = {name: i for i, name in enumerate(COLUMNS)}
UPDATE = [AT["dot"], AT["sumsq_delta"]]
GRADIENT = [AT["grad_sumsq"], AT["grad_dot"], AT["grad_nonfinite"], AT["gradients"]]
RATES = [AT["lr"], AT["weight_decay"], AT["grouped"]]


class Snapshot:
    """θ′ of some parameters, held from before the optimizer's step until it is summed."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Copy the tensors; memory of an earlier copy is used again."""
        if [(t.shape, t.dtype, t.device) for t in self.tensors] != [
            (t.shape, t.dtype, t.device) for t in tensors
        ]:
            self.tensors = [torch.empty_like(t, requires_grad=False) for t in tensors]
        copy_into(self.tensors, tensors)

    def release(self) -> None:
        """Give the memory back."""
        self.tensors = []


class Recorder:
    """Measures the parameters of this rank, whatever way they are sharded."""

    def __init__(self, layout: Layout, ranks: Ranks, updates: bool) -> None:
        self.layout, self.ranks, self.updates = layout, ranks, updates
        self._where = {id(p): i for i, p in enumerate(layout.parameters)}
        self._plain = not any(isinstance(p, DTensor) or p.is_complex() for p in layout.parameters)
        self._snapshots: dict[int, Snapshot] = {}
        self._groups: dict[int, tuple[list[int], list[Indices]]] = {}
        self.start()

    def start(self) -> None:
        """Begin a record: nothing is measured yet."""
        self._values = np.zeros((len(self.layout.parameters), len(COLUMNS)))
        self._summed = np.zeros(len(self._values), dtype=bool)
        self.gradients_at: str | None = None

    def _group_places(self, optimizer: Optimizer) -> list[Indices]:
        """Places of the parameters of each group; found again when a group was added or has grown."""
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        known = self._groups.get(id(optimizer))
        if known is None or known[0] != sizes:
            where = self._where
            known = (
                sizes,
                [
                    np.array([where[id(p)] for p in group["params"] if id(p) in where], dtype=np.int64)
                    for group in optimizer.param_groups
                ],
            )
            self._groups[id(optimizer)] = known
        return known[1]

    def _places(self, optimizer: Optimizer) -> Indices:
        return np.concatenate(self._group_places(optimizer))

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer) -> None:
        """Note the learning rates and copy θ′."""
        for group, places in zip(optimizer.param_groups, self._group_places(optimizer), strict=True):
            self._values[places, RATES[0]] = float(group.get("lr", np.nan))
            self._values[places, RATES[1]] = float(group.get("weight_decay", 0.0))
            self._values[places, RATES[2]] = 1.0
        if self.updates:
            self._snapshots.setdefault(id(optimizer), Snapshot()).take(self._tensors(self._places(optimizer)))

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, keep: bool) -> None:
        """Sum what this optimizer has changed; `keep` the memory of θ′ for the next step."""
        chosen = self._places(optimizer)
        snapshot = self._snapshots.get(id(optimizer))
        self._sum(chosen, snapshot.tensors if snapshot is not None else None)
        if snapshot is not None and not keep:
            snapshot.release()

    @torch.no_grad()
    def measure_gradients(self, when: str, optimizer: Optimizer | None = None, scale: float = 1.0) -> None:
        """‖g‖² and ⟨θ, g⟩ of the gradients as they are now; of one optimizer's parameters, or of all."""
        asked = np.arange(len(self._values)) if optimizer is None else self._places(optimizer)
        gradients = self._gradients(asked)
        chosen = asked[[g is not None for g in gradients]]
        self._values[asked[:, None], GRADIENT] = 0.0
        if not len(chosen):
            return
        found = sums_of([g for g in gradients if g is not None], None, self._tensors(chosen))
        found[:, SUMSQ] /= scale**2
        found[:, INIT] /= scale
        self._values[chosen[:, None], GRADIENT[:3]] = found[:, [SUMSQ, INIT, NONFINITE]]
        self._values[chosen, GRADIENT[3]] = 1.0
        self.gradients_at = when

    def unscale_gradients(self, scale: float) -> None:
        """Divide by what the loss was multiplied with."""
        self._values[:, GRADIENT[0]] /= scale**2
        self._values[:, GRADIENT[1]] /= scale

    @torch.no_grad()
    def finish(self) -> None:
        """Sum the parameters that no optimizer has touched."""
        self._sum(np.flatnonzero(~self._summed), None)

    def whole(self, step: int, extra: Array, first: bool = False) -> tuple[Record, Array]:
        """The record of the whole model and the sum of `extra` over the ranks: one all-reduce."""
        layout = self.layout
        values = np.zeros((len(layout.described), len(COLUMNS)))
        mine = self._values.copy()
        mine[~layout.counts] = 0.0
        mine[:, RATES] = np.where(layout.speaks[:, None], self._values[:, RATES], 0.0)
        values[layout.indices] = mine
        added = self.ranks.add_up(np.concatenate([values.ravel(), extra]))
        values = added[: values.size].reshape(values.shape)
        self._blank(values, first)
        return Record(step, values, first), added[values.size :]

    def _blank(self, values: Array, first: bool) -> None:
        """NaN where nothing was measured, and where a gradient is not finite."""
        without = (values[:, GRADIENT[3]] == 0) | (values[:, GRADIENT[2]] > 0)
        values[np.ix_(without, GRADIENT[:2])] = np.nan
        values[np.ix_(values[:, RATES[2]] == 0, RATES[:2])] = np.nan
        if first or not self.updates:
            values[:, UPDATE] = np.nan

    def _sum(self, chosen: Indices, previous: Sequence[Tensor] | None) -> None:
        found = sums_of(self._tensors(chosen), previous)
        self._values[chosen[:, None], [AT["sumsq"], AT["nonfinite"], *UPDATE]] = found[
            :, [SUMSQ, NONFINITE, DOT, DELTA]
        ]
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
