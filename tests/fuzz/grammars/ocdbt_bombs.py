"""Stores of a few kilobytes that unpack to far more: shared nodes, long common keys, repeated bytes."""

from __future__ import annotations

import json
import zlib
from random import Random

from ...checkpoints.bundle_writer import varint
from ..mutations import integer
from .ocdbt_stores import NODE, Child, Lies, files_table, interior, leaf, manifest, sealed, zeros

_FILES = files_table([(b"", b"d/data")])
Store = tuple[bytes, bytes]
"""The manifest, and the data."""


def bomb_of_nodes(lies: Lies) -> Store:
    """One of them; most are sound in every other way, so that nothing else is refused first."""
    rng = lies.rng
    some = lies if rng.random() < 0.2 else Lies(rng)
    return rng.choice((_shared, _shared, _long_keys, _long_paths, _repeated, _values))(rng, some)


def _ended(lies: Lies, node: bytes, data: bytes = b"", height: int = 0) -> Store:
    return manifest(lies, _FILES, Child(b"", 0, len(data), len(node)), height), data + node


def _array(shape: list[int], chunks: list[int]) -> bytes:
    packing = {"id": "zlib", "level": 1}
    described = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f4", "compressor": packing}
    return json.dumps(described | {"fill_value": None, "filters": None, "order": "C"}).encode()


def _shared(rng: Random, lies: Lies) -> Store:
    """A tree whose nodes have the same child several times, or themselves, on many levels."""
    height, spread = rng.choice((1, 3, 12, 20, 30, 255)), rng.choice((1, 2, 2, 5))
    key = b"a" * rng.choice((1, 9, 3000))
    node, data = leaf(lies, _FILES, [(key, b"{}"), (b"x/.zarray", _array([4], [4]))]), b""
    for level in range(1, height + 1):
        place = (0, len(data), len(node))
        data += node
        if rng.random() < 0.02:
            place = (0, len(data), integer(rng, len(node), 0) % 2**64)  # the node itself
        children = [Child(bytes([97 + i]), *place, 1) for i in range(spread)]
        node = interior(lies, _FILES, children, level)
    return _ended(lies, node, data, height)


def _long_keys(rng: Random, lies: Lies) -> Store:
    """Keys that share almost all with the one before."""
    count, size = rng.choice((10, 3_000, 20_000)), rng.choice((10, 1_000, 60_000))
    columns = varint(size) * (count - 1) + varint(size + 4) + varint(4) * (count - 1)
    keys = b"k" * size + b"".join(i.to_bytes(4, "big") for i in range(count))
    values = varint(2) * count + bytes(count) + b"{}" * count
    return _ended(lies, sealed(NODE, b"\0" + _FILES + varint(count) + columns + keys + values))


def _long_paths(rng: Random, lies: Lies) -> Store:
    """Files whose names share almost all with the one before."""
    count, size = rng.choice((10, 3_000, 20_000)), rng.choice((10, 1_000, 60_000))
    table = varint(count) + varint(size) * (count - 1) + varint(size + 1) + varint(1) * (count - 1)
    table += varint(0) * count + b"f" * (size + count)
    return _ended(lies, sealed(NODE, b"\0" + table + varint(1) + bytes(rng.randrange(99))))


def _repeated(rng: Random, lies: Lies) -> Store:
    """A node that is one byte many times."""
    return _ended(lies, sealed(NODE, zeros(rng.choice((10**6, 10**8, 10**9))), 1))


def _values(rng: Random, lies: Lies) -> Store:
    """Chunks in one place: a stream of nothing, which ends with a number."""
    count = rng.choice((10, 300, 3_000))
    data = b"\x78\x01" + b"\0\0\0\xff\xff" * rng.choice((10, 200_000)) + zlib.compress(bytes(4))[2:]
    pairs = [(f"params.w/{i}".encode(), (0, 0, len(data))) for i in range(count)]
    described = (b"params.w/.zarray", _array([count], [1]))
    return _ended(lies, leaf(lies, _FILES, sorted([described, *pairs])), data)
