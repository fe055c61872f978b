"""The parameters that one optimizer updates, and the rates of its groups as they are now."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from normscope.live.model.optimizer_inspection import decay_is_coupled, kind_of, learning_rate, momentum_of
from normscope.weights.sums.live_sums import KeptTensors

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

RATE_COLUMNS = ("lr", "weight_decay", "kind", "momentum", "coupled", "param_group", "grouped")


@dataclass
class OptimizerPart:
    """One optimizer's parameters among those of this rank."""

    optimizer: Callable[[], Optimizer | None]
    """A weak reference."""
    members: list[list[int]]
    """The ids of the parameters in each group, to notice when the groups change."""
    groups: list[Indices]
    """The positions of each group's parameters."""
    indices: Indices
    """All of them."""
    where: slice | Indices
    """The same as an index: a slice, which is faster, if they are all parameters of this rank in order."""
    first_group: int
    """The number of the first group among those of all optimizers."""
    kind: float
    tensors: list[Tensor] | None = None
    """The parameters, unless they are sharded."""
    initial: KeptTensors | None = None
    """θ₀ of each, if it is kept."""
    rates: Array = field(default_factory=lambda: np.zeros((0, len(RATE_COLUMNS))))
    """[parameters, RATE_COLUMNS]"""

    def __post_init__(self) -> None:
        self._read: list[tuple[float, ...]] = []
        self._settings: list[Any] = []
        self.covers_all = isinstance(self.where, slice)
        self.rates = np.zeros((len(self.indices), len(RATE_COLUMNS)))

    @classmethod
    def of(
        cls,
        optimizer: Optimizer,
        position: Mapping[int, int],
        kinds: Mapping[str, float],
        first_group: int,
    ) -> OptimizerPart:
        """Look up an optimizer's parameters; those of other models are left out."""
        members = _members(optimizer)
        groups = [np.array([position[i] for i in ids if i in position], dtype=np.int64) for ids in members]
        indices = np.concatenate(groups) if groups else np.empty(0, dtype=np.int64)
        kind = kinds.get(kind_of(optimizer), np.nan)
        where = as_index(indices, len(position))
        return cls(weakref.ref(optimizer), members, groups, indices, where, first_group, kind)

    def is_current(self) -> bool:
        """Whether the optimizer still has the same parameters in the same groups."""
        optimizer = self.optimizer()
        return optimizer is not None and _members(optimizer) == self.members

    def read_rates(self) -> None:
        """Read learning rate, weight decay and momentum of every group."""
        optimizer = self.optimizer()
        assert optimizer is not None
        settings = [
            value for group in optimizer.param_groups for key, value in group.items() if key != "params"
        ]
        if len(settings) == len(self._settings) and all(map(is_, settings, self._settings)):
            return
        self._settings = settings if all(map(_stays, settings)) else []
        read = [self._rates_of(optimizer, number) for number in range(len(self.groups))]
        if read == self._read:
            return
        self._read = read
        self.rates = np.empty_like(self.rates)  # earlier records keep theirs
        start = 0
        for rates, group in zip(read, self.groups, strict=True):
            self.rates[start : start + len(group)] = rates
            start += len(group)

    def _rates_of(self, optimizer: Optimizer, number: int) -> tuple[float, ...]:
        group = optimizer.param_groups[number]
        rates = learning_rate(group), float(group.get("weight_decay", 0.0))
        settings = momentum_of(optimizer, group), float(decay_is_coupled(optimizer, group))
        return (*rates, self.kind, *settings, float(self.first_group + number), 1.0)


def as_index(indices: Indices, size: int) -> slice | Indices:
    """The indices, or a slice if they are all of `size` in order."""
    return slice(None) if np.array_equal(indices, np.arange(size)) else indices


def _members(optimizer: Optimizer) -> list[list[int]]:
    return [list(map(id, group["params"])) for group in optimizer.param_groups]


def _stays(value: object) -> bool:
    """Whether a group's setting is the same number as long as it is the same object."""
    return isinstance(value, float | int | str | None) or (
        isinstance(value, tuple) and all(isinstance(each, float | int) for each in value)
    )
