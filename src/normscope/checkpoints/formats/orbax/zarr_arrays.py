"""One zarr array as the bytes of a tensor, read through tensorstore a band of chunks at a time."""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.formats.extents import Extent
from normscope.checkpoints.formats.orbax.zarr_places import Place
from normscope.checkpoints.formats.torch.records import ITEM_SIZES
from normscope.errors import CorruptCheckpoint

BAND_BYTES = 64_000_000
"""Unpacked bands kept over all arrays; one larger band is kept alone."""

_DTYPES: Mapping[str, str] = {
    "<f8": "float64", "<f4": "float32", "<f2": "float16", "<i8": "int64", "<i4": "int32", "<i2": "int16",
    "|i1": "int8", "<u8": "uint64", "<u4": "uint32", "<u2": "uint16", "|u1": "uint8", "|b1": "bool",
}  # fmt: skip


_tokens = itertools.count()  # ids of objects that are gone come back; these do not


def parse_metadata(metadata: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Shape, chunk shape and dtype, of either version of zarr."""
    if metadata.get("zarr_format") == 3:
        chunks, named = metadata["chunk_grid"]["configuration"]["chunk_shape"], metadata["data_type"]
    else:
        chunks, named = metadata["chunks"], metadata["dtype"]
    shape = metadata["shape"]
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in (*shape, *chunks)) or len(shape) != len(chunks):
        raise ValueError("a shape is no row of counts")
    if 0 in chunks or len(shape) > 64:
        raise ValueError("a chunk is empty")
    dtype = _DTYPES.get(named, named) if isinstance(named, str) else ""
    if dtype not in ITEM_SIZES:
        raise ValueError(f"unknown dtype {str(named)[:40]}")
    return tuple(shape), tuple(chunks), dtype


class ZarrArray(Extent):
    """An array's row-major bytes.

    Chunks are compressed whole, so a read unpacks the band of chunks along the first axis
    longer than one that covers it, and the band is kept for the reads that follow.
    """

    def __init__(
        self, place: Place, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str
    ) -> None:
        self.shape, self.dtype, self._place, self._name = shape, dtype, place, name
        self._axis = next((axis for axis, n in enumerate(shape) if n != 1), len(shape))
        self._rows = chunks[self._axis] if self._axis < len(shape) else 1
        self._row_bytes = math.prod(shape[self._axis + 1 :]) * ITEM_SIZES[dtype]
        self._store: Any = None
        self._token = next(_tokens)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]

    @property
    def read_granularity(self) -> int:
        """A band."""
        return max(1, self._rows * self._row_bytes)

    @property
    def is_counter(self) -> bool:
        """Whether it is a single whole number."""
        return math.prod(self.shape) == 1 and self.dtype in ("int32", "int64")

    def read(self, start: int, stop: int) -> Buffer:
        """Out of the bands that cover the range."""
        if start == stop:
            return b""
        band_bytes = self._rows * self._row_bytes
        parts = []
        for index in range(start // band_bytes, -(-stop // band_bytes)):
            base = index * band_bytes
            parts.append(self._band(index)[max(start - base, 0) : stop - base])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop(self, start: int, stop: int) -> None:
        """Forget the bands that end inside the range."""
        band_bytes = self._rows * self._row_bytes or 1
        for index in range(start // band_bytes, -(-stop // band_bytes)):
            if (index + 1) * band_bytes <= stop or stop == self.nbytes:
                _bands.forget((self._token, index))

    def _band(self, index: int) -> memoryview:
        with self._lock:
            kept = _bands.get((self._token, index))
            if kept is None:
                kept = self._read_band(index)
                _bands.put((self._token, index), kept)
            return kept

    def _read_band(self, index: int) -> memoryview:
        try:
            if self._store is None:
                self._store = self._place.open(self._name)
            if tuple(self._store.shape) != self.shape:
                raise CorruptCheckpoint(f"The array {self._place.name}/{self._name} changed its shape.")
            if self._axis == len(self.shape):
                whole = self._store.read().result()
            else:
                rows = slice(index * self._rows, min((index + 1) * self._rows, self.shape[self._axis]))
                whole = self._store[(*[0] * self._axis, rows)].read().result()
        except (ValueError, MemoryError, OverflowError) as error:
            raise self._place.reason(self._name, error) from None
        return np.ascontiguousarray(whole).reshape(-1).view(np.uint8).data


class _Bands:
    """Unpacked bands, the latest used, up to a number of bytes."""

    def __init__(self) -> None:
        self._bands: OrderedDict[tuple[int, int], memoryview] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int]) -> memoryview | None:
        """The band, if it is kept."""
        with self._lock:
            found = self._bands.get(key)
            if found is not None:
                self._bands.move_to_end(key)
            return found

    def put(self, key: tuple[int, int], band: memoryview) -> None:
        """Keep a band, and let others go until all fit."""
        with self._lock:
            self._bands[key] = band
            self._bytes += len(band)
            while self._bytes > BAND_BYTES and len(self._bands) > 1:
                self._bytes -= len(self._bands.popitem(last=False)[1])

    def forget(self, key: tuple[int, int]) -> None:
        """Let a band go."""
        with self._lock:
            band = self._bands.pop(key, None)
            self._bytes -= 0 if band is None else len(band)


_bands = _Bands()
