"""The rows of a batch of records: all at once, because a record of a small model takes microseconds.

Rows are in the order of their keys (tensor, then step): those of one tensor lie beside each other in the
file, so a batch touches a few pages per tensor instead of one per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.live.writing.journal_entries import COLUMNS, Array, Record, stacked
from normscope.rows import NO_PREVIOUS, OptimizerRow
from normscope.run_schema import APPLIED, KEY, LIVE_COLUMNS, SUMS

SETTINGS = ("kind", "momentum", "coupled", "param_group")
"""The columns of a record that the table `optimizer` has, written when they change."""
_WRITTEN = [COLUMNS.index(name) for name in (*SUMS, *APPLIED)]
_SET = [COLUMNS.index(name) for name in SETTINGS]
_GROUPED = COLUMNS.index("grouped")


def stack(records: Sequence[Record], kept: NDArray[np.int64]) -> Array:
    """The values of the kept parameters, [records, parameters, COLUMNS]."""
    return stacked(records)[:, kept]


def weight_rows(records: Sequence[Record], values: Array, ids: NDArray[np.int64]) -> Array:
    """Rows for `Run.write_live`, [parameters × records, LIVE_COLUMNS]."""
    table = np.empty((len(ids), len(records), len(LIVE_COLUMNS)))
    table[:, :, 0] = [record.step for record in records]
    table[:, :, 1] = [NO_PREVIOUS if record.first else record.step - 1 for record in records]
    table[:, :, 2] = ids[:, None]
    table[:, :, len(KEY) :] = values[:, :, _WRITTEN].transpose(1, 0, 2)
    return table.reshape(-1, len(LIVE_COLUMNS))


class SettingChanges:
    """Finds where the optimizer's settings of a parameter changed; at most steps they do not."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._last: Array | None = None

    def forget(self) -> None:
        """Write all settings again at the next record."""
        self._last = None

    def rows(
        self, records: Sequence[Record], values: Array, ids: NDArray[np.int64], kinds: Sequence[str]
    ) -> Iterator[OptimizerRow]:
        """A row for each parameter whose settings are not those of the record before."""
        settings, grouped = values[:, :, _SET], values[:, :, _GROUPED] != 0
        last = np.full_like(settings[0], np.nan) if self._last is None else self._last
        if not (_differ(settings, last) & grouped[:, :, None]).any():
            return
        for record, now, known in zip(records, settings, grouped, strict=True):
            changed = np.flatnonzero(known & _differ(now, last).any(axis=1))
            last = np.where(known[:, None], now, last)
            for i in changed:
                if not np.isnan(now[i, 0]):
                    yield self._row(record.step, int(ids[i]), kinds, now[i].tolist())
        self._last = last

    def _row(self, step: int, tensor: int, kinds: Sequence[str], settings: Sequence[float]) -> OptimizerRow:
        kind, momentum, coupled, group = settings
        return OptimizerRow(
            step,
            tensor,
            kinds[int(kind)],
            None if np.isnan(momentum) else momentum,
            bool(coupled),
            self._stage,
            None if np.isnan(group) else int(group),
        )


def _differ(a: Array, b: Array) -> NDArray[np.bool_]:
    """Where two arrays differ; NaN is equal to NaN."""
    differ: NDArray[np.bool_] = (a != b) & ~(np.isnan(a) & np.isnan(b))
    return differ
