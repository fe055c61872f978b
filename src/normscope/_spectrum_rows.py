"""Rows about the singular values of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from normscope.run_files.run_documents import read_column

SPECTRAL_MEASURES = {
    "spectral-norm": "spectral_norm",
    "stable-rank": "stable_rank",
    "effective-rank": "effective_rank",
    "nuclear-norm": "nuclear_norm",
    "alpha": "alpha",
}
"""Measures of a run that spectra of weights give, by the column they are read from."""
LARGEST_MEASURES = frozenset({"qk-spectral-norm", "ov-spectral-norm", "qk-logit-bound"})
"""Measures of attention heads: a group has the largest of its heads, not their mean."""
NO_PART = -1
"""The part of a tensor that is one matrix."""


@dataclass(frozen=True)
class SpectrumRow:
    """The singular values of one matrix at one step, in figures; None where something cannot be said.

    `kind` is weights, update, growth, qk or ov, and `prev_step` the step that an update or growth is measured
    from. `part` numbers the heads of qk and ov, and the matrices of a tensor that holds several (experts); it
    is −1 for a tensor that is one.
    `detail` has the largest values, the quantiles, errors, and whether growth makes old directions longer
    (docs/spectra.md).

    >>> ns.SpectrumRow(1000, "weights", tensor=3, method="exact", spectral_norm=2.5).part
    -1
    """

    step: int
    kind: str
    tensor: int
    method: str
    spectral_norm: float | None
    norm: float | None = None
    stable_rank: float | None = None
    effective_rank: float | None = None
    nuclear_norm: float | None = None
    condition: float | None = None
    directions_half: float | None = None
    directions_most: float | None = None
    gini: float | None = None
    hoyer: float | None = None
    bulk_edge: float | None = None
    outliers: int | None = None
    bulk_distance: float | None = None
    alpha: float | None = None
    xmin: float | None = None
    alpha_distance: float | None = None
    log_alpha_norm: float | None = None
    alpha_weighted: float | None = None
    detail: Mapping[str, Any] | None = field(default=None, hash=False)
    prev_step: int = -1
    part: int = NO_PART
    stage: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.detail, str):  # as a run file stores it
            object.__setattr__(self, "detail", read_column(None, "detail", self.detail))
