"""GPTQ and AWQ: integers of a few bits, stored with rows and columns exchanged, with zero points and scales.

For a weight of shape (out, in), `X.scales` has the shape (groups, out) and `X.qzeros` the same, packed
along out. GPTQ packs `X.qweight` along in, and `X.g_idx` says which group each input belongs to; its zero
points are smaller by one than they are, except in the format gptq_v2. AWQ packs along out, eight values in
a word in the order 0 2 4 6 1 3 5 7. The value is (number − zero point) × scale.
https://github.com/AutoGPTQ/AutoGPTQ (qlinear_cuda.py), https://github.com/ModelCloud/GPTQModel
(utils/model.py), https://github.com/casper-hansen/AutoAWQ (packing_utils.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.formats.quantised.stored_parts import Floats, StoredPart
from normscope.checkpoints.formats.quantised.unpacking.packed_bits import RUN, unpack_dense, unpack_ordered
from normscope.checkpoints.formats.quantised.unpacking.transposed_slabs import TransposedSlabs
from normscope.errors import CorruptCheckpoint

Groups: TypeAlias = npt.NDArray[Any]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_WORD = 4


@dataclass(frozen=True)
class ColumnPacked(TransposedSlabs):
    """A weight of GPTQ, or of AWQ if `ordered`; columns whose zero points share words are a group."""

    qweight: StoredPart
    qzeros: StoredPart
    scales: StoredPart
    g_idx: StoredPart | None
    bits: int
    length: int
    ordered: bool = False
    zero_shift: int = 0
    """What is added to the stored zero points."""
    matrices: int = 1

    @property
    def width(self) -> int:  # type: ignore[override]
        """Columns whose zero points are in the same words."""
        return 8 if self.ordered else RUN

    @property
    def groups(self) -> int:  # type: ignore[override]
        """Groups of columns."""
        return self.scales.shape[1] // self.width

    @cached_property
    def _group_of_row(self) -> Groups:
        """Which scale belongs to each stored row."""
        count = self.scales.shape[0]
        if self.g_idx is None:
            return np.arange(self.length) // -(-self.length // count)
        raw = self.g_idx.bytes_of(0, self.g_idx.nbytes)
        found = raw.view("<i4" if self.g_idx.dtype == "int32" else "<i8")
        if found.size and not (found.min() >= 0 and found.max() < count):
            raise CorruptCheckpoint(
                f"{self.g_idx.name[:200]!r} names groups that {count} scales do not have."
            )
        return found

    def strip(self, matrix: int, groups: slice, rows: slice) -> Floats:
        """Unpack the numbers of some rows, and apply the zero points and scales of their groups."""
        columns = slice(groups.start * self.width, groups.stop * self.width)
        which = self._group_of_row[rows]
        low, high = int(which.min()), int(which.max()) + 1
        scales = self._table(self.scales.floats(*self._span(self.scales, low, high)), high - low)[:, columns]
        zeros = self._zeros(groups, low, high)
        found: Floats = self._codes(groups, rows).astype(np.float32)
        found -= zeros[which - low]
        found *= scales[which - low]
        return found

    @staticmethod
    def _span(part: StoredPart, low: int, high: int) -> tuple[int, int]:
        return low * part.shape[1], high * part.shape[1]

    @staticmethod
    def _table(values: Floats, rows: int) -> Floats:
        return values.reshape(rows, -1)

    def _words(self, part: StoredPart, low: int, high: int) -> npt.NDArray[np.uint32]:
        """Some rows of words, as they are stored."""
        begin, end = self._span(part, low, high)
        return part.bytes_of(_WORD * begin, _WORD * end).view("<u4").reshape(high - low, -1)

    def _zeros(self, groups: slice, low: int, high: int) -> Floats:
        each = 1 if self.ordered else self.bits
        words = self._words(self.qzeros, low, high)[:, groups.start * each : groups.stop * each]
        if self.ordered:
            return unpack_ordered(words, AWQ_ORDER).astype(np.float32)
        found = unpack_dense(words.reshape(-1, self.bits), self.bits) + np.uint8(self.zero_shift)
        return (found & np.uint8((1 << self.bits) - 1)).reshape(high - low, -1).astype(np.float32)

    def _codes(self, groups: slice, rows: slice) -> npt.NDArray[np.uint8]:
        if self.ordered:
            words = self._words(self.qweight, rows.start, rows.stop)
            return unpack_ordered(words[:, groups], AWQ_ORDER)
        low, high = rows.start * self.bits // RUN, -(-rows.stop * self.bits // RUN)
        columns = slice(groups.start * RUN, groups.stop * RUN)
        words = self._words(self.qweight, low, high)[:, columns]
        runs = words.reshape(-1, self.bits, words.shape[1])
        return unpack_dense(runs, self.bits).reshape(-1, words.shape[1])[: rows.stop - rows.start]
