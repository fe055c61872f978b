"""OCDBT stores: a manifest that points to a B+tree of keys and values, written with lies about them.

https://google.github.io/tensorstore/kvstore/ocdbt/index.html describes the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from ...checkpoints.bundle_writer import varint
from ..mutations import damaged, integer

MANIFEST, NODE = b"\x0c\xdb\x3a\x2a", b"\x0c\xdb\x20\xde"
Value = bytes | tuple[int, int, int]
"""A value in the node, or its file, offset and length."""


def _table() -> list[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        found.append(byte)
    return found


_CRC = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def sealed(magic: bytes, body: bytes, kind: int = 0, length: int | None = None, crc: int = 0) -> bytes:
    """A header, the body, and the checksum of both; `crc` is what to add to that."""
    size = len(magic) + 8 + 2 + len(body) + 4 if length is None else length
    data = magic + (size % 2**64).to_bytes(8, "little") + varint(0) + varint(kind) + body
    return data + (crc32c(data) + crc & 0xFFFFFFFF).to_bytes(4, "little")


def frame(data: bytes, told: int | None = None) -> bytes:
    """A frame of Zstandard whose blocks are stored as they are; `told` is the size it announces."""
    size = len(data) if told is None else told
    blocks = [data[at : at + 100_000] for at in range(0, len(data), 100_000)] or [b""]
    ends = (index == len(blocks) - 1 for index in range(len(blocks)))
    content = b"".join(
        (len(b) << 3 | end).to_bytes(3, "little") + b for b, end in zip(blocks, ends, strict=True)
    )
    return b"\x28\xb5\x2f\xfd\xe0" + (size % 2**64).to_bytes(8, "little") + content


def zeros(size: int) -> bytes:
    """A frame of so many zeros: four bytes for each 128 KiB."""
    block = 1 << 17
    count = max(1, -(-size // block))
    rest = size - (count - 1) * block
    blocks = ((block if i < count - 1 else rest, i == count - 1) for i in range(count))
    content = b"".join((n << 3 | 2 | end).to_bytes(3, "little") + b"\0" for n, end in blocks)
    return b"\x28\xb5\x2f\xfd\x80\x58" + size.to_bytes(4, "little") + content


def files_table(paths: Sequence[tuple[bytes, bytes]], lengths: Sequence[int] = ()) -> bytes:
    """The data files that a node refers to, as base and relative path; `lengths` replaces shared prefixes."""
    found = varint(len(paths)) + b"".join(varint(n) for n in (lengths or [0] * max(0, len(paths) - 1)))
    found += b"".join(varint(len(base) + len(rest)) for base, rest in paths)
    return found + b"".join(varint(len(base)) for base, _ in paths) + b"".join(b + r for b, r in paths)


@dataclass(frozen=True)
class Child:
    """A reference from a node, or from the manifest, to a node below."""

    key: bytes
    file: int
    offset: int
    length: int
    shared: int = 0
    """Bytes of the key that the keys of the child leave out."""
    keys: int = 1


@dataclass
class Lies:
    """Where numbers are replaced by others, and how many were."""

    rng: Random
    odd: float = 0.0
    told: int = 0

    def often(self, part: float = 0.1) -> bool:
        lie = self.rng.random() < self.odd * part
        self.told += lie
        return lie

    def varint(self, value: int, part: float = 0.02) -> bytes:
        return varint(integer(self.rng, value, 0) % 2**64 if self.often(part) else value)

    def column(self, values: Sequence[int]) -> bytes:
        return b"".join(map(self.varint, values))

    def seal(self, magic: bytes, body: bytes) -> bytes:
        """Compress a body or not, and put header and checksum around it."""
        if self.often(0.1):
            body = damaged(self.rng, body)
        kind, options = 0, {}
        if self.rng.random() < 0.4:
            kind, body = 1, frame(body, integer(self.rng, len(body), 0) % 2**64 if self.often(0.1) else None)
        if self.often(0.05):
            options["length"] = integer(self.rng, len(body), 0)
        if self.often(0.05):
            options["crc"] = self.rng.randrange(1, 2**32)
        if self.often(0.03):
            kind = self.rng.choice((0, 1, 2, 2**31))
        return sealed(magic, body, kind, **options)


def _keys(lies: Lies, keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The columns of key lengths, and the keys without what they share with the one before."""
    shared = []
    for one, other in pairwise(keys):
        count = 0
        while count < min(len(one), len(other)) and one[count] == other[count]:
            count += 1
        shared.append(count)
    rest = [key[n:] for key, n in zip(keys, [0, *shared], strict=True)]
    return lies.column(shared) + lies.column([len(key) for key in rest]), b"".join(rest)


def leaf(lies: Lies, files: bytes, pairs: Sequence[tuple[bytes, Value]]) -> bytes:
    """A node of keys and values."""
    columns, rest = _keys(lies, [key for key, _ in pairs])
    body = b"\0" + files + lies.varint(len(pairs)) + columns + rest
    body += lies.column([len(v) if isinstance(v, bytes) else v[2] for _, v in pairs])
    body += bytes(0 if isinstance(v, bytes) else 1 for _, v in pairs)
    placed = [v for _, v in pairs if not isinstance(v, bytes)]
    body += lies.column([v[0] for v in placed]) + lies.column([v[1] for v in placed])
    return lies.seal(NODE, body + b"".join(v for _, v in pairs if isinstance(v, bytes)))


def interior(lies: Lies, files: bytes, children: Sequence[Child], height: int) -> bytes:
    """A node of nodes."""
    columns, rest = _keys(lies, [child.key for child in children])
    body = bytes([height % 256]) + files + lies.varint(len(children)) + columns
    body += lies.column([child.shared for child in children]) + rest
    return lies.seal(NODE, body + _references(lies, children))


def _references(lies: Lies, children: Sequence[Child]) -> bytes:
    columns = ([c.file for c in children], [c.offset for c in children], [c.length for c in children])
    statistics = ([c.keys for c in children], [0] * len(children), [0] * len(children))
    return b"".join(map(lies.column, (*columns, *statistics)))


def manifest(lies: Lies, files: bytes, root: Child, height: int) -> bytes:
    """The manifest of a store of one version."""
    body = bytes(16) + b"\0" + varint(100) + varint(10**6) + b"\4" + varint(0) + files
    body += lies.varint(1) + lies.varint(1) + bytes([height % 256]) + _references(lies, [root])
    return lies.seal(MANIFEST, body + bytes(8) + lies.varint(0))


@dataclass
class Store:
    """A store while it is written: all its data are in one file."""

    lies: Lies
    path: tuple[bytes, bytes] = (b"", b"d/data")
    data: bytes = b""
    nodes: list[Child] = field(default_factory=list)

    def put(self, data: bytes) -> tuple[int, int, int]:
        self.data += data
        return 0, len(self.data) - len(data), len(data)

    def finished(self, pairs: Sequence[tuple[bytes, bytes]], spread: int) -> tuple[bytes, bytes]:
        """The manifest and the data of a tree, each of whose nodes has up to `spread` entries."""
        lies, rng = self.lies, self.lies.rng
        files = files_table([self.path])
        if lies.often(0.1):
            files = damaged(rng, files)
        values = [(k, v if len(v) < 50 and rng.random() < 0.5 else self.put(v)) for k, v in pairs]
        level = []
        for start in range(0, len(values), spread):
            some = values[start : start + spread]
            cut = _common([some[0][0], some[-1][0]]) if rng.random() < 0.5 and len(values) > spread else 0
            place = self.put(leaf(lies, files, [(key[cut:], value) for key, value in some]))
            level.append(Child(some[0][0], *place, cut, len(some)))
        height = 0
        while len(level) > 1:
            height += 1
            level = self._above(level, files, height, max(2, spread))
        self.nodes += level
        height = integer(rng, height, 0) % 256 if lies.often(0.1) else height
        return manifest(lies, files, level[0], height), self.data

    def _above(self, level: list[Child], files: bytes, height: int, spread: int) -> list[Child]:
        lies, above = self.lies, []
        self.nodes += level
        for start in range(0, len(level), spread):
            some = [self._lied(child) for child in level[start : start + spread]]
            told = integer(lies.rng, height, 0) if lies.often(0.1) else height
            node = interior(lies, files, some, told)
            above.append(Child(some[0].key, *self.put(node), 0, sum(child.keys for child in some)))
        return above

    def _lied(self, child: Child) -> Child:
        """A child, or another one under its key: one that is there twice, or of another level."""
        if not self.lies.often(0.3):
            return child
        other = self.lies.rng.choice(self.nodes)
        return self.lies.rng.choice((
            replace(other, key=child.key), replace(child, key=other.key),
            replace(child, shared=len(child.key)),
            replace(child, offset=integer(self.lies.rng, child.offset, 0) % 2**64),
        ))  # fmt: skip


def _common(keys: Sequence[bytes]) -> int:
    count = 0
    while count < min(map(len, keys)) and len({key[count] for key in keys}) == 1:
        count += 1
    return count
