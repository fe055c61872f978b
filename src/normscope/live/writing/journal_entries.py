"""What a monitor queues for its run file: records, scalars, rates, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from normscope.live.alarms.alarms import Alarm
from normscope.live.alarms.record_summary import ForwardLook
from normscope.live.model.sharding import ParameterInfo
from normscope.live.writing.resuming import Rewind
from normscope.rows import ActivationRow, AttentionRow, HeadRow, RateRow, SaturationRow, SpectrumRow

Array = NDArray[np.float64]

COLUMNS = (
    "sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite",
    "grad_sumsq", "grad_dot", "grad_nonfinite", "gradients",
    "lr", "weight_decay", "kind", "momentum", "coupled", "param_group", "grouped",
)  # fmt: skip
"""What a rank adds to a record for each parameter.

`gradients` is 1 where the parameter has a gradient, `grouped` where it is in a parameter group. `kind` is
the number of the optimizer's class, `coupled` 1 where weight decay is added to the gradient. `absmax` is
the only one that does not add up over ranks.
"""


class Unassembled(Protocol):
    """What was measured for one record; the numbers are made of it when they are needed."""

    def values(self) -> Array:
        """[parameters, COLUMNS]"""

    def values_with(self, others: Sequence[Self]) -> Sequence[Array]:
        """Those of this record and of others, which is faster than one by one."""


@dataclass(frozen=True)
class Record:
    """The sums of all parameters at one step."""

    step: int
    measured: Array | Unassembled
    """`values`, or what makes them: training need not wait for that."""
    first: bool = False
    """Taken before the first step, so there is no update."""
    backward_order: Sequence[int] = ()
    """The parameters in the order in which the last backward pass reached them."""
    frozen: Sequence[int] = ()
    """The parameters of rank 0 that are to get no gradient."""
    forward: ForwardLook | None = None
    """What was seen of the last forward pass."""

    @cached_property
    def values(self) -> Array:
        """[parameters, COLUMNS]; NaN where nothing was measured."""
        return self.measured if isinstance(self.measured, np.ndarray) else self.measured.values()

    def column(self, name: str) -> Array:
        """One of COLUMNS, one value per parameter."""
        column: Array = self.values[:, COLUMNS.index(name)]
        return column


def stacked(records: Sequence[Record]) -> Array:
    """The values of several records, [records, parameters, COLUMNS], made at once where they are not yet."""
    waiting = [record for record in records if "values" not in vars(record)]
    measured = [each.measured for each in waiting if not isinstance(each.measured, np.ndarray)]
    if len(measured) == len(waiting) and len(measured) > 1:
        first, *others = measured
        for record, values in zip(waiting, first.values_with(others), strict=True):
            vars(record)["values"] = values  # where the cached property keeps it
    return np.stack([record.values for record in records])


@dataclass(frozen=True)
class Scalars:
    """Numbers that the training loop logged at one step."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class RateChanges:
    """Learning rates and weight decays of parameter groups that changed."""

    rows: Sequence[RateRow]


@dataclass(frozen=True)
class NetworkRows:
    """What running the model showed at one step: of a probe with a `note`, or of the training forward."""

    step: int
    rows: Sequence[SaturationRow | HeadRow | AttentionRow | ActivationRow]
    note: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True)
class SpectralRows:
    """Spectral norms at one step; the `tensor` of a row is its position among the parameters, `names`."""

    step: int
    rows: Sequence[SpectrumRow]
    names: Sequence[str]


@dataclass(frozen=True)
class Note:
    """A remark that is kept in the run's metadata."""

    key: str
    text: str


@dataclass(frozen=True)
class ParameterInventory:
    """The parameters that later records are about."""

    parameters: Sequence[ParameterInfo]
    skipped: Mapping[str, str]
    """Tensors that are not measured, each with the reason."""
    kinds: Sequence[str] = ()
    """The classes of the optimizers, on all ranks."""


JournalEntry = (
    Record | Rewind | Scalars | RateChanges | NetworkRows | SpectralRows | Alarm | Note | ParameterInventory
)
