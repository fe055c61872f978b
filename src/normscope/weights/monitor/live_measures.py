"""Totals and groups of one record: what loggers show and what the alarms read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import Place, in_scope, locate_all
from normscope.errors import UsageError
from normscope.theory.measures import formulas
from normscope.weights.monitor.alarms import Reading
from normscope.weights.monitor.journal import Record
from normscope.weights.monitor.sharding import ParameterInfo

Array = NDArray[np.float64]
Sums = Mapping[str, Array]


def _alignment(s: Sums) -> Array:
    """⟨θ′, Δ⟩ / (‖θ′‖·‖Δ‖), with ‖θ′‖² = ‖θ‖² − 2⟨θ′, Δ⟩ − ‖Δ‖²."""
    before = formulas.sumsq_before(s["sumsq"], s["dot"], s["sumsq_delta"])
    return formulas.alignment(s["dot"], np.maximum(before, 0), s["sumsq_delta"])


MEASURES: Mapping[str, Callable[[Sums], Array]] = {
    "norm": lambda s: np.sqrt(s["sumsq"]),
    "update": lambda s: np.sqrt(s["sumsq_delta"]),
    "alignment": _alignment,
    "gradient": lambda s: np.sqrt(s["grad_sumsq"]),
}
GROUPS: Mapping[str, Callable[[Place, ParameterInfo], str]] = {
    "total": lambda place, tensor: "",
    "layer": lambda place, tensor: place.group,
    "role": lambda place, tensor: place.role.replace(" ", "-"),
    "tensor": lambda place, tensor: tensor.name,
}
SUMMED = ("sumsq", "dot", "sumsq_delta", "grad_sumsq")


@dataclass(frozen=True)
class _Grouping:
    names: tuple[str, ...]
    index: NDArray[np.int64]


class LiveMeasures:
    """Adds a record's tensors up by the groupings one asks for, over the parameters of a scope."""

    def __init__(
        self, described: Sequence[ParameterInfo], groups: Sequence[str] = ("total",), scope: str = "body"
    ) -> None:
        for group in groups:
            if group not in GROUPS:
                raise UsageError(f"cannot group by {group!r}: known are {', '.join(GROUPS)}")
        places = locate_all(item.name for item in described)
        self._names = [item.name for item in described]
        self._kept = _scope(described, places, scope)
        kept = [described[i] for i in self._kept]
        self._groups = {
            group: _grouping([GROUPS[group](places[d.name], d) for d in kept]) for group in groups
        }
        self._layers = _grouping([places[d.name].group for d in kept])

    def values(self, record: Record, measures: Sequence[str]) -> dict[str, float]:
        """Numbers under slash-separated keys: normscope/norm/total, normscope/norm/layer/03."""
        found: dict[str, float] = {}
        for group, grouping in self._groups.items():
            sums = self._sums(record, grouping)
            for measure in measures:
                with np.errstate(divide="ignore", invalid="ignore"):
                    values = MEASURES[measure](sums)
                for name, value in zip(grouping.names, values.tolist(), strict=True):
                    if np.isfinite(value):
                        found["/".join(filter(None, ("normscope", measure, group, name)))] = value
        return found

    def reading(self, record: Record) -> Reading:
        """What the alarms look at."""
        sums = self._sums(record, _Grouping(("",), np.zeros(len(self._kept), dtype=np.int64)))
        with np.errstate(divide="ignore", invalid="ignore"):
            norm, gradient, alignment = (
                float(MEASURES[m](sums)[0]) for m in ("norm", "gradient", "alignment")
            )
        sizes = np.sqrt(self._sums(record, self._layers)["sumsq"]).tolist()
        layers = {k: v for k, v in zip(self._layers.names, sizes, strict=True) if k != "outside"}
        return Reading(record.step, norm, gradient, alignment, layers, self._nonfinite(record))

    def _sums(self, record: Record, grouping: _Grouping) -> dict[str, Array]:
        """Group sums; a tensor without an update or a gradient adds nothing, no tensor with one gives NaN."""
        found = {}
        for name in SUMMED:
            values = record.column(name)[self._kept]
            there = ~np.isnan(values)
            total = np.bincount(grouping.index, np.where(there, values, 0.0), len(grouping.names))
            measured = np.bincount(grouping.index, there, len(grouping.names))
            found[name] = np.where(measured > 0, total, np.nan)
        return found

    def _nonfinite(self, record: Record) -> list[tuple[str, int]]:
        found = []
        for column, prefix in (("nonfinite", ""), ("grad_nonfinite", "the gradient of ")):
            counts = np.nan_to_num(record.column(column))
            found += [(prefix + self._names[i], int(counts[i])) for i in np.flatnonzero(counts)]
        return found


def _scope(described: Sequence[ParameterInfo], places: Mapping[str, Place], scope: str) -> NDArray[np.int64]:
    """Indices of the parameters that count; a model without a body keeps all."""
    counted = [i for i, d in enumerate(described) if d.tied_to is None]
    kept = in_scope(counted, scope, lambda i: (places[described[i].name].role, described[i].shape))
    return np.array(kept, dtype=np.int64)


def _grouping(names: Sequence[str]) -> _Grouping:
    distinct = tuple(sorted(set(names)))
    place = {name: i for i, name in enumerate(distinct)}
    return _Grouping(distinct, np.array([place[name] for name in names], dtype=np.int64))
