"""compressed-tensors' pack-quantized weights: integers of 1 to 8 bits, packed along the rows of the weight.

`X.weight_packed` has 32 elements in as many words as they have bits, `X.weight_shape` the shape of the
weight, `X.weight_scale` a number per group, row or tensor. Numbers are stored plus 2^(bits−1). Zero points,
if there are any, are packed the same way along the other axis. `X.weight_g_idx` says which group a column
belongs to. https://github.com/vllm-project/compressed-tensors (compressors/pack_quantized).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.formats.quantised.stored_parts import (
    Bytes,
    Floats,
    Found,
    PackedWeight,
    StoredPart,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import LARGEST_UNIT, ComputedFloats
from normscope.checkpoints.formats.quantised.unpacking.packed_bits import RUN, unpack_dense
from normscope.errors import CorruptCheckpoint

ENDINGS = (".weight_packed",)
_SCALES = ("float32", "bfloat16", "float16")
_BITS = re.compile(r"'num_bits': ([1-8])\b")
_LONG = 1_000_000
UNCLEAR = (
    "its packed numbers, scales and shape do not fit together, or the bits of a number are not known. Load "
    "it with transformers and compressed-tensors, and save the dequantised model"
)


@dataclass(frozen=True)
class PackedRows(ComputedFloats):
    """Rows of packed integers; `index` says which column of the scales each column has."""

    packed: StoredPart
    scale: StoredPart
    zero: StoredPart | None
    g_idx: StoredPart | None
    bits: int
    shape: tuple[int, int]

    @property
    def unit(self) -> int:
        """One row."""
        return self.shape[1]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.shape[0] * self.shape[1]

    @property
    def _columns(self) -> int:
        return self.scale.shape[1] if len(self.scale.shape) == 2 else 1

    @cached_property
    def _group_of_column(self) -> npt.NDArray[Any]:
        count, columns = self._columns, self.shape[1]
        if self.g_idx is not None:
            found = self.g_idx.bytes_of(0, self.g_idx.nbytes).view(
                "<i4" if self.g_idx.dtype == "int32" else "<i8"
            )
            if found.min() >= 0 and found.max() < count:
                return found
            if not (found == -1).all():  # which stands for columns in their order
                raise CorruptCheckpoint(f"{self.g_idx.name[:200]!r} names groups that do not exist.")
        return np.arange(columns) // -(-columns // count)

    def fill(self, out: Floats, first: int, last: int) -> None:
        """Unpack some rows, take off the zero points, and multiply by the scales."""
        words = self.packed.shape[1]
        raw = self.packed.bytes_of(4 * first * words, 4 * last * words)
        self.packed.drop(4 * first * words, 4 * last * words)
        values = out.reshape(last - first, -1)
        values[:] = _unpack_rows(raw.view("<u4").reshape(-1, words), self.bits)[:, : self.shape[1]]
        which = self._group_of_column
        middle = np.float32(1 << (self.bits - 1))
        values -= middle if self.zero is None else self._zeros(self.zero, first, last)[:, which]
        values *= self._scales(first, last)[:, which]

    def _scales(self, first: int, last: int) -> Floats:
        if self.scale.tensor.numel == 1:
            return self.scale.floats(0, 1).reshape(1, 1)
        return self.scale.floats(first * self._columns, last * self._columns).reshape(-1, self._columns)

    def _zeros(self, zero: StoredPart, first: int, last: int) -> Floats:
        """Zero points of some rows; those of 32 rows share their words."""
        low = first // RUN * self.bits
        high = min(zero.shape[0], -(-last // RUN) * self.bits)
        raw = zero.bytes_of(4 * low * self._columns, 4 * high * self._columns)
        found = _unpack_rows(raw.view("<u4").reshape(high - low, -1).T, self.bits).T
        begin = first // RUN * RUN
        return found[first - begin : last - begin].astype(np.float32)


def _unpack_rows(words: npt.NDArray[Any], bits: int) -> Bytes:
    """The elements of each row; words that are missing at the end of a row count as zero."""
    rows, count = words.shape
    padded = np.zeros((rows, -(-count // bits) * bits), np.uint32)
    padded[:, :count] = words
    return unpack_dense(padded.reshape(-1, bits), bits).reshape(rows, -1)


def find_packed_rows(stored: StoredTensors) -> Iterator[Found]:
    """The weights that are packed in words."""
    text = repr(stored.config)[:_LONG] if _any(stored) else ""
    asked = {int(found) for found in _BITS.findall(text)}
    for name in stored.tensors:
        packed = stored.part(name) if name.endswith(ENDINGS) else None
        if packed is not None and packed.dtype == "int32":
            yield _packed(stored, packed, asked)


def _any(stored: StoredTensors) -> bool:
    return any(name.endswith(ENDINGS) and tensor.dtype == "int32" for name, tensor in stored.tensors.items())


def _packed(stored: StoredTensors, packed: StoredPart, asked: set[int]) -> Found:
    stem = packed.name.removesuffix("_packed")
    scale, shape, zero, g_idx = (
        stored.part(f"{stem}_{last}") for last in ("scale", "shape", "zero_point", "g_idx")
    )
    parts = tuple(part.name for part in (packed, scale, shape, zero, g_idx) if part is not None)
    sizes = None if shape is None else _sizes(shape)
    if scale is None or sizes is None or len(packed.shape) != 2 or packed.shape[0] != sizes[0]:
        return UnreadWeight(stem, parts, UNCLEAR)
    bits = _bits(packed.shape[1], sizes[1], asked)
    columns = scale.shape[1] if len(scale.shape) == 2 else 1
    whole = scale.tensor.numel == 1 and zero is None
    by_row = len(scale.shape) == 2 and scale.shape[0] == sizes[0] and 0 < columns <= sizes[1]
    even = g_idx is None or (g_idx.shape == sizes[1:] and g_idx.dtype in ("int32", "int64"))
    known = scale.dtype in _SCALES and (whole or by_row) and even and sizes[1] % columns == 0
    if bits is None or not known or not _fits(zero, sizes[0], bits, columns):
        return UnreadWeight(stem, parts, UNCLEAR)
    extent = PackedRows(packed, scale, zero, g_idx, bits, sizes)
    return PackedWeight(stem, sizes, parts, extent, f"int{bits} (compressed-tensors)")


def _sizes(part: StoredPart) -> tuple[int, int] | None:
    """The shape of the weight, which is stored as two integers."""
    if part.shape != (2,) or part.dtype not in ("int64", "int32"):
        return None
    rows, columns = (int(n) for n in np.frombuffer(part.small(), "<i8" if part.dtype == "int64" else "<i4"))
    return (rows, columns) if rows > 0 and 0 < columns <= LARGEST_UNIT else None


def _bits(words: int, columns: int, asked: set[int]) -> int | None:
    """The bits of a number, if the width of a row admits only one, or one of those in the settings."""
    fitting = [bits for bits in range(1, 9) if -(-columns * bits // 32) == words]
    named = [bits for bits in fitting if bits in asked]
    chosen = named if len(named) == 1 else fitting
    return chosen[0] if len(chosen) == 1 else None


def _fits(zero: StoredPart | None, rows: int, bits: int, columns: int) -> bool:
    return zero is None or (zero.dtype == "int32" and zero.shape == (-(-rows * bits // 32), columns))
