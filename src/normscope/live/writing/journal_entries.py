"""What a monitor queues for its run file: records, scalars, rates, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.live.alarms.alarms import Alarm
from normscope.live.writing.resuming import Rewind
from normscope.rows import RateRow

Array = NDArray[np.float64]

COLUMNS = (
    "sumsq", "nonfinite", "dot", "sumsq_delta", "grad_sumsq", "grad_dot", "grad_nonfinite", "gradients",
    "lr", "weight_decay", "kind", "momentum", "coupled", "grouped", "dot_init", "absmax", "param_group",
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
class Note:
    """A remark that is kept in the run's metadata."""

    key: str
    text: str


JournalEntry = Record | Rewind | Scalars | RateChanges | Alarm | Note
