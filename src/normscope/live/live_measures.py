"""Measures of one record by group: the values that loggers get, and what the alarms read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import SCOPES, in_scope, scope_used
from normscope.live.alarm_parts import AlarmParts
from normscope.live.alarms.record_summary import RecordSummary
from normscope.live.writing.journal_entries import Record
from normscope.run import TensorRow
from normscope.theory.measures.measures import GROUPINGS
from normscope.theory.measures.update_measures import LiveSums

Array = NDArray[np.float64]

SUMMED = tuple(field.name for field in fields(LiveSums))


@dataclass(frozen=True)
class _Grouping:
    """The group of each counted tensor, as an index into `names`."""

    names: tuple[str, ...]
    index: NDArray[np.int64]


class LiveMeasures:
    """Adds up a record's tensors by group, over the parameters of a scope."""

    def __init__(
        self,
        tensors: Sequence[TensorRow],
        groups: Sequence[str] = ("total",),
        scope: str = "body",
        optimizers: int = 1,
    ) -> None:
        def role_and_shape(i: int) -> tuple[str, tuple[int, ...]]:
            return tensors[i].role, tensors[i].shape

        counted = [i for i, tensor in enumerate(tensors) if tensor.tied_to is None]
        chosen = in_scope(counted, scope, role_and_shape)
        rows = [tensors[i] for i in chosen]
        self.scope = scope_used(counted, scope, role_and_shape)
        """The parameters that are counted: body, all, or all (no body)."""
        self._scopes = {
            each: np.array(in_scope(counted, each, role_and_shape), dtype=np.int64)
            for each in SCOPES
            if scope_used(counted, each, role_and_shape) == each
        }
        self._chosen = np.array(chosen, dtype=np.int64)
        self._groups = {by: _grouping(rows, by) for by in groups}
        self._parts = AlarmParts(tensors, self._scopes, optimizers)

    def values(self, record: Record, measures: Sequence[str]) -> dict[str, float]:
        """Numbers under slash-separated keys: normscope/norm/total, normscope/norm/layer/03.

        With the totals come keys that name their scope, normscope/update/scope/body, and for the norm those
        of both scopes. A measure is NaN where values are not finite, with their number beside it; what was
        not measured is left out.
        """
        found = self._norms(record) if "norm" in measures and "total" in self._groups else {}
        for by, grouping in self._groups.items():
            sums = self._sums(record, grouping)
            bad = {kind: self._counts(record, grouping, kind) for kind in ("nonfinite", "grad_nonfinite")}
            for measure in measures:
                broken = bad["grad_nonfinite" if measure == "gradient" else "nonfinite"]
                values = np.where(broken > 0, np.nan, sums.measure(measure)).tolist()
                for name, value, count in zip(grouping.names, values, broken.tolist(), strict=True):
                    if count or np.isfinite(value):
                        found[_key(measure, by, name)] = value
                        if by == "total":
                            found[_key(measure, "scope", self._scope_key)] = value
            for name, *counts in zip(grouping.names, *(bad[kind].tolist() for kind in bad), strict=True):
                if sum(counts):
                    found[_key("nonfinite", by, name)] = sum(counts)
        return found

    @property
    def _scope_key(self) -> str:
        """The scope as a key of both has it: body or all."""
        return "body" if self.scope == "body" else "all"

    def _norms(self, record: Record) -> dict[str, float]:
        """The norm of each scope that the model has: normscope/norm/scope/body, normscope/norm/scope/all."""
        sumsq, nonfinite = record.column("sumsq"), np.nan_to_num(record.column("nonfinite"))
        found = {}
        for scope, chosen in self._scopes.items():
            norm = float(np.sqrt(_sum_by_group(sumsq[chosen], np.zeros_like(chosen), 1)[0]))
            broken = bool(nonfinite[chosen].any())
            if broken or np.isfinite(norm):
                found[_key("norm", "scope", scope)] = np.nan if broken else norm
        return found

    def _counts(self, record: Record, grouping: _Grouping, column: str) -> Array:
        """The number of values of each group that are not finite."""
        counts = np.nan_to_num(record.column(column)[self._chosen])
        total: Array = np.bincount(grouping.index, counts, len(grouping.names)).astype(np.float64)
        return total

    def summaries(self, records: Sequence[Record]) -> list[RecordSummary]:
        """The numbers that the alarms depend on."""
        return self._parts.summaries(records)

    def _sums(self, record: Record, grouping: _Grouping) -> LiveSums:
        size = len(grouping.names)
        columns = {name: record.column(name)[self._chosen] for name in SUMMED}
        return LiveSums(**{n: _sum_by_group(values, grouping.index, size) for n, values in columns.items()})


def _sum_by_group(values: Array, groups: NDArray[np.int64], size: int) -> Array:
    """Sums over the tensors of each group that have a value; NaN for a group in which none has."""
    measured = ~np.isnan(values)
    total = np.bincount(groups, np.where(measured, values, 0.0), size)
    return np.where(np.bincount(groups, measured, size) > 0, total, np.nan)


def _grouping(tensors: Sequence[TensorRow], by: str) -> _Grouping:
    groups = [GROUPINGS[by](tensor) for tensor in tensors]
    names = tuple(sorted(set(groups)))
    index = {name: i for i, name in enumerate(names)}
    return _Grouping(names, np.array([index[group] for group in groups], dtype=np.int64))


def _key(measure: str, by: str, group: str) -> str:
    """The key of a value in a tracker; roles have spaces, which not every tracker accepts."""
    if by == "total":
        return f"normscope/{measure}/total"
    return f"normscope/{measure}/{by}/{group.replace(' ', '-') if by == 'role' else group}"
