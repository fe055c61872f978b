"""Sorted tables of LevelDB, written with lies about blocks, keys and compression."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from ...checkpoints.bundle_writer import MAGIC, masked_crc, varint
from ..mutations import damaged, integer

Pair = tuple[bytes, bytes]


@dataclass
class Table:
    """A table as it is written; `lies` counts what was changed in it after its pairs were decided."""

    rng: Random
    odd: float
    data: bytes = b""
    handles: list[Pair] = field(default_factory=list)
    lies: int = 0

    def often(self, part: float) -> bool:
        """Whether a lie is told here."""
        lie = self.rng.random() < self.odd * part
        self.lies += lie
        return lie

    def block(self, pairs: list[Pair], spare: int) -> bytes:
        """The entries, where each key omits what it shares with the one before, and the restarts."""
        content, previous, restarts = b"", b"", []
        for index, (key, value) in enumerate(pairs):
            shared = 0
            if index % spare:
                while shared < min(len(previous), len(key)) and previous[shared] == key[shared]:
                    shared += 1
            else:
                restarts.append(len(content))
            numbers = [shared, len(key) - shared, len(value)]
            if self.often(0.02):
                which = self.rng.randrange(3)
                numbers[which] = integer(self.rng, numbers[which], 0) % 2**64
            content += b"".join(map(varint, numbers)) + key[shared:] + value
            previous = key
        count = len(restarts)
        if self.often(0.03):
            count = integer(self.rng, count, 0) % 2**32
        if self.often(0.03):
            content = damaged(self.rng, content)
        return content + b"".join(at.to_bytes(4, "little") for at in restarts) + count.to_bytes(4, "little")

    def add(self, last: bytes, content: bytes) -> None:
        """Append a block, and note its place."""
        rng, kind = self.rng, 0
        if rng.random() < 0.5:
            content, kind = snappy(self, content), 1
        if self.often(0.02):
            kind = rng.choice((0, 1, 2, 255))
        sealed = content + bytes([kind])
        crc = masked_crc(sealed)
        if self.often(0.02):
            crc = rng.choice((0, crc ^ 1, crc + 1 & 0xFFFFFFFF))
        handle = [len(self.data), len(content)]
        if self.often(0.03):
            which = rng.randrange(2)
            handle[which] = integer(rng, handle[which], 0) % 2**64
        self.data += sealed + crc.to_bytes(4, "little")
        self.handles.append((last, varint(handle[0]) + varint(handle[1])))

    def finished(self, pairs: list[Pair]) -> bytes:
        """The whole file."""
        rng, size = self.rng, self.rng.choice((1, 2, 4, 16))
        for start in range(0, len(pairs), size):
            some = pairs[start : start + size]
            self.add(some[-1][0], self.block(some, rng.choice((1, 2, 16))))
        if self.handles and self.often(0.05):
            self._lie_about_blocks()
        index = self.block(self.handles, 1)
        at = len(self.data)
        self.handles = []
        self.add(b"", index)
        handle = varint(0) + varint(0) + self.handles[0][1]
        if self.often(0.03):
            handle = varint(integer(rng, at, 0) % 2**64) + varint(integer(rng, 8, 0) % 2**64) + handle
        if self.often(0.02):
            handle = damaged(rng, handle)
        return self.data + handle[:40].ljust(40, b"\0") + MAGIC

    def _lie_about_blocks(self) -> None:
        """A block is listed twice, or not at all, or in another order."""
        one, kind = self.rng.choice(self.handles), self.rng.randrange(4)
        if kind == 0:
            self.handles.append(one)
        elif kind == 1:
            self.handles.remove(one)
        elif kind == 2:
            self.handles.reverse()
        else:
            self.handles *= self.rng.choice((2, 20, 2000))


def snappy(table: Table, data: bytes) -> bytes:
    """Literals, and copies of what came before, of all the kinds that Snappy has."""
    rng, at, result = table.rng, 0, b""
    length = len(data)
    if table.often(0.03):
        length = rng.choice((0, 2**31, 2**32 - 1, integer(rng, length, 0) % 2**64))
    while at < len(data):
        size = rng.randrange(1, 65)
        piece = data[at : at + size]
        back = at - data.rfind(piece, 0, at + len(piece) - 1)
        if 0 < back <= at and len(piece) >= 4 and not table.often(0.01):
            result += _copy(rng, len(piece), back if not table.often(0.01) else integer(rng, back, 0))
        else:
            result += _literal(rng, piece)
        at += len(piece)
    if table.often(0.03):
        result = damaged(rng, result)
    return varint(length) + result


def _literal(rng: Random, piece: bytes) -> bytes:
    size = len(piece) - 1
    if size < 60 and rng.random() < 0.8:
        return bytes([size << 2]) + piece
    width = rng.randrange(1, 5)
    return bytes([(59 + width) << 2]) + size.to_bytes(width, "little") + piece


def _copy(rng: Random, size: int, back: int) -> bytes:
    if 4 <= size < 12 and back < 2048 and rng.random() < 0.6:
        return bytes([(back >> 8) << 5 | (size - 4) << 2 | 1, back & 255])
    width = 2 if back < 2**16 and rng.random() < 0.7 else 4
    return bytes([(size - 1) << 2 | (2 if width == 2 else 3)]) + (back % 256**width).to_bytes(width, "little")


def pairs_of(data: bytes) -> dict[bytes, bytes]:
    """What a table holds, read on its own terms; ValueError for what breaks the format's rules."""
    at, numbers = len(data) - 48, []
    for _ in range(4):
        number, at = _number(data, at)
        numbers.append(number)
    found: dict[bytes, bytes] = {}
    keys: list[bytes] = []
    for _, handle in _entries(_unsealed(data, *numbers[2:])):
        offset, place = _number(handle, 0)
        size, _ = _number(handle, place)
        for key, value in _entries(_unsealed(data, offset, size)):
            keys.append(key)
            found[key] = value
    if any(one >= other for one, other in pairwise(keys)):
        raise ValueError("keys are not in order")
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value % 2**64, at
    raise ValueError("a long number")


def _unsealed(data: bytes, offset: int, size: int) -> bytes:
    sealed, crc = data[offset : offset + size + 1], data[offset + size + 1 : offset + size + 5]
    if len(sealed) != size + 1 or masked_crc(sealed) != int.from_bytes(crc, "little"):
        raise ValueError("a block that is damaged")
    if sealed[-1] > 1:
        raise ValueError("an unknown compression")
    return _expanded(sealed[:-1]) if sealed[-1] else sealed[:-1]


def _expanded(data: bytes) -> bytes:
    length, at = _number(data, 0)
    out = bytearray()
    while at < len(data) and len(out) <= length:
        tag, at = data[at], at + 1
        kind, size = tag & 3, (tag >> 2) + 1
        if not kind:
            if size > 60:
                width = size - 60
                size, at = int.from_bytes(data[at : at + width], "little") + 1, at + width
            out += data[at : at + size]
            at += size
            continue
        if kind == 1:
            size, back, at = (tag >> 2 & 7) + 4, tag >> 5 << 8 | data[at], at + 1
        else:
            width = 2 * kind - 2
            back, at = int.from_bytes(data[at : at + width], "little"), at + width
        if not 0 < back <= len(out):
            raise ValueError("a copy of what is not there")
        for _ in range(size):
            out.append(out[-back])
    if len(out) != length or at != len(data):
        raise ValueError("another length than announced")
    return bytes(out)


def _entries(block: bytes) -> list[Pair]:
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0 or len(block) < 4:
        raise ValueError("too many restarts")
    found, at, key = [], 0, b""
    while at < end:
        shared, at = _number(block, at)
        fresh, at = _number(block, at)
        size, at = _number(block, at)
        if shared > len(key) or at + fresh + size > end:
            raise ValueError("an entry beyond its block")
        key = key[:shared] + block[at : at + fresh]
        found.append((key, block[at + fresh : at + fresh + size]))
        at += fresh + size
    return found
