"""What a monitor queues for its run file: records, scalars, rates, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.live.alarms.alarms import Alarm
from normscope.live.model.sharding import ParameterInfo
from normscope.live.writing.resuming import Rewind
from normscope.rows import ActivationRow, AttentionRow, HeadRow, RateRow, SaturationRow

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


@dataclass(frozen=True)
class Record:
    """The sums of all parameters at one step, [parameters, columns]; NaN where nothing was measured."""

    step: int
    values: Array
    first: bool = False
    """Taken before the first step, so there is no update."""
    backward_order: tuple[int, ...] = ()
    """The parameters in the order in which the last backward pass reached them."""

    def column(self, name: str) -> Array:
        """One of COLUMNS, one value per parameter."""
        column: Array = self.values[:, COLUMNS.index(name)]
        return column


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


JournalEntry = Record | Rewind | Scalars | RateChanges | NetworkRows | Alarm | Note | ParameterInventory
