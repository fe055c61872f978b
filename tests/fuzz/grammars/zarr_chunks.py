"""Arrays of zarr, of both versions: their metadata and their chunks, with lies about them."""

from __future__ import annotations

import bz2
import gzip
import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..mutant import Values
from ..mutations import as_pairs, damaged, integer, json_bytes, mutated_json
from .ocdbt_stores import Lies, crc32c, frame, zeros

DTYPES = {
    "float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "bfloat16", "int32": "<i4",
    "bool": "|b1", "uint8": "|u1", "int64": "<i8", "float8_e4m3fn": "float8_e4m3fn",
}  # fmt: skip
"""The dtypes by their names in version 3, and what they are called in version 2."""
MEASURED = ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn")
WIDTHS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "bool": 1, "uint8": 1,
          "int64": 8, "float8_e4m3fn": 1}  # fmt: skip
BOMB = 400_000_000


def blosc(data: bytes, told: int | None = None) -> bytes:
    """A buffer of Blosc that is stored as it is; `told` is the size it announces."""
    sizes = (len(data) if told is None else told, max(1, len(data)), len(data) + 16)
    return b"\2\1\2\1" + b"".join((size % 2**32).to_bytes(4, "little") for size in sizes) + data


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "zlib": lambda data: zlib.compress(data, 1),
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "bz2": bz2.compress,
    "zstd": frame,
    "blosc": blosc,
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "zlib": {"level": 1}, "gzip": {"level": 1}, "bz2": {"level": 1}, "zstd": {"level": 1},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1},
}  # fmt: skip


@cache
def bomb(kind: str) -> bytes:
    """A few bytes that unpack to hundreds of megabytes."""
    if kind == "zstd":
        return zeros(BOMB)
    if kind == "blosc":
        return blosc(bytes(16), 2**31 - 1)
    packer = zlib.compressobj(1, wbits=31 if kind == "gzip" else 15)
    pieces = [packer.compress(bytes(1_000_000)) for _ in range(BOMB // 1_000_000)]
    return b"".join(pieces) + packer.flush()


@dataclass
class Array:
    """An array and its files, by their names in its folder."""

    lies: Lies
    third: bool
    dtype: str = ""
    shape: tuple[int, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    exact: bool = True
    """Whether nothing in it was changed, so that its values are those of `values`."""
    values: Values | None = None
    inner: tuple[int, ...] | None = None
    """The chunks inside each chunk, which is then a shard."""

    def write(self) -> None:
        """Choose values, and store them."""
        rng, told = self.lies.rng, self.lies.told
        self.dtype = rng.choice(("float32", *DTYPES))
        self.shape = tuple(rng.choice((1, 2, 3, 5, 9)) for _ in range(rng.randrange(4)))
        chunks = tuple(rng.randrange(1, size + 3) for size in self.shape)
        width = WIDTHS[self.dtype]
        data = rng.randbytes(prod(self.shape) * width)
        if self.dtype == "bool":
            data = bytes(byte & 1 for byte in data)
        whole = np.frombuffer(data, f"V{width}").reshape(self.shape).copy()
        order = rng.choice("CCF") if not self.third else "C"
        kind = rng.choice([k for k in COMPRESSIONS if not self.third or k not in ("zlib", "bz2", "blosc")])
        if self.third and rng.random() < 0.3:
            self.inner = tuple(rng.choice([n for n in range(1, c + 1) if c % n == 0]) for c in chunks)
            kind = ""
        metadata = self._third(chunks, kind) if self.third else self._second(chunks, kind, order)
        for place in itertools.product(*(range(-(-n // c)) for n, c in zip(self.shape, chunks, strict=True))):
            here = tuple(slice(i * c, i * c + c) for i, c in zip(place, chunks, strict=True))
            if rng.random() < 0.1:
                whole[here] = np.zeros((), f"V{width}")  # what is zero need not be stored
                continue
            block = np.zeros(chunks, f"V{width}")
            part = whole[here]
            block[tuple(map(slice, part.shape))] = part
            self._chunk(place, kind, self._sharded(block) if self.inner else block.tobytes(order))
        if self.third and self.lies.often(0.1):
            size = 1 << rng.randrange(8, 25)
            metadata["shape"] = metadata["chunk_grid"]["configuration"]["chunk_shape"] = [size]
            metadata["codecs"] = [_sharding((rng.choice((1, 16, size)),))]
        text = as_pairs(metadata)
        while self.lies.often(0.5):
            text = mutated_json(rng, text)
        encoded = json_bytes(text, rng)
        self.files["zarr.json" if self.third else ".zarray"] = (
            damaged(rng, encoded) if self.lies.often(0.05) else encoded
        )
        self.exact = self.lies.told == told
        self.values = Values(self.shape, whole.tobytes() if self.dtype in MEASURED else b"", self.dtype)

    def _chunk(self, place: tuple[int, ...], kind: str, data: bytes) -> None:
        rng, lies = self.lies.rng, self.lies
        if lies.often(0.2):
            data = rng.choice((data[:-1], data + b"\0", b"", data * 2))
        packed = COMPRESSIONS[kind](data)
        if lies.often(0.2):
            packed = damaged(rng, packed)
        if lies.often(0.1) and kind in ("zlib", "gzip", "zstd", "blosc"):
            packed = bomb(kind)
        if lies.often(0.1):
            told = integer(rng, len(data), 0)
            packed = rng.choice((frame(data, told), blosc(data, told), b"", zeros(rng.choice((9, 10**6)))))
        words = [str(integer(rng, n, 0) if lies.often(0.1) else n) for n in place]
        name = "/".join(["c", *words]) if self.third else ".".join(words) or "0"
        if not lies.often(0.1):
            self.files[name] = packed

    def _second(self, chunks: tuple[int, ...], kind: str, order: str) -> dict[str, Any]:
        return {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": list(chunks),
            "dtype": DTYPES[self.dtype],
            "order": order,
            "compressor": {"id": kind, **_OPTIONS[kind]} if kind else None,
            "fill_value": self.lies.rng.choice((None, 0)) if self.dtype != "bool" else None,
            "filters": None,
            "dimension_separator": ".",
        }

    def _third(self, chunks: tuple[int, ...], kind: str) -> dict[str, Any]:
        options = {"level": 1, "checksum": False} if kind == "zstd" else {"level": 1}
        packing = [{"name": kind, "configuration": options}] if kind else []
        zero: Any = False if self.dtype == "bool" else 0
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": zero,
            "codecs": [_sharding(self.inner)] if self.inner else [_BYTES, *packing],
        }

    def _sharded(self, block: np.ndarray) -> bytes:
        """A shard: its chunks, and where they are."""
        rng, lies, content, index = self.lies.rng, self.lies, b"", b""
        counts = (range(n // c) for n, c in zip(block.shape, self.inner, strict=True))
        for place in itertools.product(*counts):
            here = tuple(slice(i * c, i * c + c) for i, c in zip(place, self.inner, strict=True))
            data = np.ascontiguousarray(block[here]).tobytes()
            pair = [len(content), len(data)] if any(data) or rng.random() < 0.5 else [2**64 - 1] * 2
            if lies.often(0.1):
                pair[rng.randrange(2)] = integer(rng, len(data), 0) % 2**64
            content += data if pair[1] != 2**64 - 1 else b""
            index += b"".join(n.to_bytes(8, "little") for n in pair)
        return content + index + (crc32c(index) + lies.often(0.05) & 0xFFFFFFFF).to_bytes(4, "little")


_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def _sharding(inner: tuple[int, ...]) -> dict[str, Any]:
    index = {"index_codecs": [_BYTES, {"name": "crc32c"}], "index_location": "end"}
    return {
        "name": "sharding_indexed",
        "configuration": {"chunk_shape": list(inner), "codecs": [_BYTES], **index},
    }
