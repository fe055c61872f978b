"""The bytes of one zarr array, read through tensorstore one band of chunks at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from normscope.checkpoints.base import ITEM_SIZES, Buffer
from normscope.checkpoints.byte_cache import ByteCache, new_owner
from normscope.checkpoints.extents import Extent
from normscope.checkpoints.formats.orbax.zarr_folder import ZarrFolder
from normscope.checkpoints.limits import AXES, limits
from normscope.errors import CorruptCheckpoint

SMALLEST_BAND = 1 << 20
"""Bytes of chunks that are read together, if the chunks are smaller."""
bands = ByteCache(64_000_000)
"""Unpacked bands of all arrays."""

_DTYPES: Mapping[str, str] = {
    "<f8": "float64", "<f4": "float32", "<f2": "float16", "<i8": "int64", "<i4": "int32", "<i2": "int16",
    "|i1": "int8", "<u8": "uint64", "<u4": "uint32", "<u2": "uint16", "|u1": "uint8", "|b1": "bool",
}  # fmt: skip


def parse_metadata(metadata: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Shape, chunk shape and dtype, from the metadata of zarr version 2 or 3."""
    if metadata.get("zarr_format") == 3:
        chunks, named = metadata["chunk_grid"]["configuration"]["chunk_shape"], metadata["data_type"]
    else:
        chunks, named = metadata["chunks"], metadata["dtype"]
    shape = metadata["shape"]
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in (*shape, *chunks)) or len(shape) != len(chunks):
        raise ValueError("a shape is not a list of non-negative integers")
    if 0 in chunks or len(shape) > AXES:
        raise ValueError(f"empty chunks, or more than {AXES} axes")
    dtype = _DTYPES.get(named, named) if isinstance(named, str) else ""
    if dtype not in ITEM_SIZES:
        raise ValueError(
            f"unknown dtype {repr(named[:40]) if isinstance(named, str) else type(named).__name__}"
        )
    return tuple(shape), tuple(chunks), dtype


def chunks_in_each(metadata: Mapping[str, Any], chunks: tuple[int, ...]) -> int:
    """How many chunks are in each chunk: in version 3 they may be shards, with chunks of their own.

    Shards may contain shards; the smallest ones are counted.
    """
    smallest, codecs = math.prod(chunks), metadata.get("codecs")
    while isinstance(codecs, list):
        inside = [c for c in codecs if isinstance(c, dict) and c.get("name") == "sharding_indexed"]
        if not inside:
            break
        options = inside[-1].get("configuration", {})
        sizes, codecs = options["chunk_shape"], options.get("codecs")
        if not all(type(n) is int and n > 0 for n in sizes):
            raise ValueError("a shard's chunks have no size")
        smallest = min(smallest, math.prod(sizes))
    return math.prod(chunks) // smallest


class ZarrArray(Extent):
    """An array's row-major bytes.

    Chunks are compressed as a whole. So a read unpacks a band: all chunks that cover the same
    rows of the first axis longer than one. The band is cached for the reads that follow.
    """

    def __init__(
        self,
        folder: ZarrFolder,
        name: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dtype: str,
        in_each: int = 1,
    ) -> None:
        self.shape, self.dtype, self._folder, self._name = shape, dtype, folder, name
        self._axis = next((axis for axis, n in enumerate(shape) if n != 1), len(shape))
        self._rows = chunks[self._axis] if self._axis < len(shape) else 1
        self._row_bytes = math.prod(shape[self._axis + 1 :]) * ITEM_SIZES[dtype]
        folder.check_unpacked(name, max(self._rows * self._row_bytes, math.prod(chunks) * ITEM_SIZES[dtype]))
        self.parts = in_each * math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True))
        if self.parts > limits().parts:
            raise ValueError(f"too many chunks in {name[:100]!r} (limit {limits().parts:,})")
        self._rows *= max(
            1, SMALLEST_BAND // max(1, self._rows * self._row_bytes)
        )  # small chunks are read together
        self._store: Any = None
        self._owner = new_owner()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Size of the whole array in bytes."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]

    @property
    def read_granularity(self) -> int:
        """One band."""
        return max(1, self._rows * self._row_bytes)

    @property
    def is_counter(self) -> bool:
        """Whether the array is a single integer."""
        return math.prod(self.shape) == 1 and self.dtype in ("int32", "int64")

    def read(self, start: int, stop: int) -> Buffer:
        """Read from the bands that cover the range."""
        if start == stop:
            return b""
        band_bytes = self._rows * self._row_bytes
        parts = []
        for index in range(start // band_bytes, -(-stop // band_bytes)):
            base = index * band_bytes
            parts.append(self._band(index)[max(start - base, 0) : stop - base])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop(self, start: int, stop: int) -> None:
        """Discard the cached bands that end inside the range."""
        band_bytes = self._rows * self._row_bytes or 1
        for index in range(start // band_bytes, -(-stop // band_bytes)):
            if (index + 1) * band_bytes <= stop or stop == self.nbytes:
                bands.discard(self._owner, index)

    def _band(self, index: int) -> Buffer:
        with self._lock:
            band = bands.get(self._owner, index)
            if band is None:
                band = self._read_band(index)
                bands.put(self._owner, index, band)
            return band

    def _read_band(self, index: int) -> memoryview:
        try:
            if self._store is None:
                self._store = self._folder.open(self._name)
            if tuple(self._store.shape) != self.shape:
                raise CorruptCheckpoint(
                    f"The array {self._folder.name}/{self._name} changed its shape; try again."
                )
            if self._axis == len(self.shape):
                whole = self._store.read().result()
            else:
                rows = slice(index * self._rows, min((index + 1) * self._rows, self.shape[self._axis]))
                whole = self._store[(*[0] * self._axis, rows)].read().result()
        except (ValueError, MemoryError, OverflowError) as error:
            raise self._folder.read_error(self._name, error) from None
        return np.ascontiguousarray(whole).reshape(-1).view(np.uint8).data
