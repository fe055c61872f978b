"""Zstandard frames, unpacked from their beginning as far as somebody asks, without the library.

tensorstore unpacks everything else; this is for looking into what it would unpack, before it does.
https://www.rfc-editor.org/rfc/rfc8878
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from normscope.checkpoints.formats.orbax.zstandard_codes import (
    Bits,
    Literals,
    Machine,
    decoded_literals,
    machine,
    read_literal_codes,
    read_machine,
)

_MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK = 1 << 17
"""Bytes to which one block can be unpacked."""
_RAW, _REPEATED, _PACKED = range(3)


def blocks(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """The kind, the content and the largest unpacked size of each block of a frame."""
    if data[:4] != _MAGIC or len(data) < 6:
        raise ValueError("not a frame of Zstandard")
    head = data[4]
    if head & 8 or head & 3:
        raise ValueError("a frame of Zstandard with a dictionary")
    single = head >> 5 & 1
    at = 6 - single + ((single, 2, 4, 8)[head >> 6])
    last = False
    while not last:
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        stored = 1 if kind == _REPEATED else size
        if at + 3 + stored > len(data) or kind > _PACKED or size > BLOCK:
            raise ValueError("a frame of Zstandard is damaged")
        yield kind, data[at + 3 : at + 3 + stored], BLOCK if kind == _PACKED else size
        at += 3 + stored


def unpacked(data: bytes) -> Iterator[bytes]:
    """What each block of a frame holds."""
    frame = _Frame()
    for kind, content, size in blocks(data):
        before = len(frame.out)
        if kind == _PACKED:
            frame.unpack(content)
        else:
            frame.out += content * size if kind == _REPEATED else content
        if len(frame.out) - before > BLOCK:
            raise ValueError("a block of Zstandard is too large")
        yield bytes(frame.out[before:])


@dataclass
class _Frame:
    """What is unpacked, and what a block may use of the blocks before it."""

    out: bytearray = field(default_factory=bytearray)
    codes: Literals | None = None
    tables: list[Machine | None] = field(default_factory=lambda: [None, None, None])
    recent: list[int] = field(default_factory=lambda: [1, 4, 8])

    def unpack(self, block: bytes) -> None:
        """Unpack a block: literals, and sequences that mix them with copies of what came before."""
        literals, at = self._literals(block)
        count, at = _count(block, at)
        if not count:
            self.out += literals
            return
        modes = block[at]
        at += 1
        for index, (shift, kind) in enumerate(zip((6, 4, 2), _KINDS, strict=True)):
            self.tables[index], at = _sequence_table(block, at, modes >> shift & 3, kind, self.tables[index])
        self._sequences(Bits(block[at:]), count, literals)

    def _sequences(self, bits: Bits, count: int, literals: bytes) -> None:
        chosen = [table for table in self.tables if table is not None]
        (low, lengths), (middle, offsets), (high, matches) = chosen
        states = [bits.read(low), bits.read(middle), bits.read(high)]
        out, taken, start = self.out, 0, len(self.out)
        for index in range(count):
            first, second, third = lengths[states[0]], offsets[states[1]], matches[states[2]]
            value = (1 << second[0]) + bits.read(second[0])
            base, extra = _MATCHES[third[0]]
            match = base + bits.read(extra)
            base, extra = _LENGTHS[first[0]]
            size = base + bits.read(extra)
            if index < count - 1:
                states[0] = first[2] + bits.read(first[1])
                states[2] = third[2] + bits.read(third[1])
                states[1] = second[2] + bits.read(second[1])
            if taken + size > len(literals) or len(out) + size + match - start > BLOCK:
                raise ValueError("a sequence of Zstandard is too long")
            out += literals[taken : taken + size]
            taken += size
            _repeat(out, self._offset(value, size), match)
        if bits.left:
            raise ValueError("a stream of bits has another length")
        out += literals[taken:]

    def _offset(self, value: int, size: int) -> int:
        """How far back to copy from: the distance, or which of the last three."""
        recent = self.recent
        if value > 3:
            self.recent = [value - 3, *recent[:2]]
            return value - 3
        which = value - 1 + (size == 0)
        offset = recent[which] if which < 3 else recent[0] - 1
        if which:
            self.recent = [offset, *(recent[:which] + recent[which + 1 :])][:3]
        return offset

    def _literals(self, block: bytes) -> tuple[bytes, int]:
        head = int.from_bytes(block[:5], "little")
        kind, form = head & 3, head >> 2 & 3
        if kind < _PACKED:
            width = (1, 2, 1, 3)[form]
            size = (head & (1 << 8 * width) - 1) >> (4 if form & 1 else 3)
            stored = 1 if kind == _REPEATED else size
            content = block[width : width + stored]
            if len(content) != stored or size > BLOCK:
                raise ValueError("literals are truncated")
            return (content * size if kind == _REPEATED else content), width + stored
        width, bits = (3, 10) if form < 2 else (form + 2, 14 if form == 2 else 18)
        size, stored = head >> 4 & (1 << bits) - 1, head >> 4 + bits & (1 << bits) - 1
        content = block[width : width + stored]
        if len(content) != stored or size > BLOCK:
            raise ValueError("literals are truncated")
        at = 0
        if kind == _PACKED:
            self.codes, at = read_literal_codes(content)
        if self.codes is None:
            raise ValueError("literals refer to codes that are not there")
        return decoded_literals(content[at:], size, 4 if form else 1, self.codes), width + stored


def _repeat(out: bytearray, back: int, count: int) -> None:
    if not 0 < back <= len(out):
        raise ValueError("a copy from before the start")
    piece = out[len(out) - back :][:count]
    out += (piece * -(-count // len(piece)))[:count]


def _count(block: bytes, at: int) -> tuple[int, int]:
    first = block[at]
    if first < 128:
        return first, at + 1
    if first < 255:
        return (first - 128 << 8) + block[at + 1], at + 2
    return block[at + 1] + (block[at + 2] << 8) + 0x7F00, at + 3


def _sequence_table(
    block: bytes, at: int, mode: int, kind: tuple[int, int, Machine], before: Machine | None
) -> tuple[Machine, int]:
    most, symbols, usual = kind
    if mode == 0:
        return usual, at
    if mode == 1:
        if block[at] > symbols:
            raise ValueError("an unknown symbol")
        return (0, [(block[at], 0, 0)]), at + 1
    if mode == 2:
        return read_machine(block, at, most, symbols)
    if before is None:
        raise ValueError("a state machine that is not there")
    return before, at


def _grown(first: int, start: int, extras: Sequence[int]) -> list[tuple[int, int]]:
    """Base and further bits of each code: single numbers first, then ranges that follow each other."""
    found = [(start + i, 0) for i in range(first)]
    base = start + first
    for extra in extras:
        found.append((base, extra))
        base += 1 << extra
    return found


_LENGTHS = _grown(16, 0, (1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16))
_MATCHES = _grown(32, 3, (1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16))
_KINDS: tuple[tuple[int, int, Machine], ...] = (
    (9, 35, machine(6, [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4])),
    (8, 31, machine(5, [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5])),
    (9, 52, machine(6, [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7])),
)
"""Of literal lengths, offsets and match lengths: bits of a state, last symbol, and the usual machine."""
