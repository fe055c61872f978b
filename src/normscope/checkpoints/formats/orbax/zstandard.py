"""Zstandard frames, unpacked from their beginning as far as somebody asks, without the library.

tensorstore unpacks everything else; this is for looking into what it would unpack, before it does.
https://www.rfc-editor.org/rfc/rfc8878
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK = 1 << 17
"""Bytes to which one block can be unpacked."""
_PAD = 8
_RAW, _REPEATED, _PACKED = range(3)
Table = tuple[int, list[tuple[int, int, int]]]
"""A state machine: the bits of a state; symbol, bits to read and base of the next state of each."""


class Bits:
    """Reads numbers from the end of some bytes to their beginning; the highest bit that is set is a mark."""

    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise ValueError("a stream of bits has no end")
        self.data = bytes(_PAD) + data
        self.left = 8 * (len(data) - 1) + data[-1].bit_length() - 1

    def read(self, count: int) -> int:
        """The next number; below the first bit there are zeros."""
        self.left -= count
        if self.left < -8 * _PAD:
            raise ValueError("a stream of bits is too short")
        at = self.left + 8 * _PAD
        word = int.from_bytes(self.data[at >> 3 : (at >> 3) + 8], "little")
        return word >> (at & 7) & (1 << count) - 1


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
    codes: tuple[int, list[tuple[int, int]]] | None = None
    tables: list[Table | None] = field(default_factory=lambda: [None, None, None])
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
            self.codes, at = _huffman(content)
        if self.codes is None:
            raise ValueError("literals refer to codes that are not there")
        return _decoded(content[at:], size, 4 if form else 1, self.codes), width + stored


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


def _huffman(data: bytes) -> tuple[tuple[int, list[tuple[int, int]]], int]:
    """The codes of literals, as symbol and bits for each of the next bits; and where they end."""
    head = data[0]
    if head >= 128:
        count, end = head - 127, 1 + (head - 126) // 2
        weights = [data[1 + i // 2] >> (0 if i & 1 else 4) & 15 for i in range(count)]
    else:
        end = 1 + head
        weights = _weights(data[1:end])
    total = sum(1 << w - 1 for w in weights if w)
    most = total.bit_length()
    rest = (1 << most) - total
    if not total or rest & rest - 1 or most > 11:
        raise ValueError("codes of literals that do not fit together")
    weights.append(rest.bit_length())
    codes = [
        (symbol, most + 1 - weight)
        for weight in range(1, most + 1)
        for symbol, each in enumerate(weights)
        if each == weight
        for _ in range(1 << weight - 1)
    ]
    if len(codes) != 1 << most:
        raise ValueError("codes of literals that do not fit together")
    return (most, codes), end


def _weights(data: bytes) -> list[int]:
    """The weights of the codes, which two state machines take turns to tell."""
    (accuracy, table), at = _described(data, 0, 6, 255)
    bits = Bits(data[at:])
    states, found = [bits.read(accuracy), bits.read(accuracy)], list[int]()
    while len(found) < 255:
        for which in (0, 1):
            symbol, count, base = table[states[which]]
            found.append(symbol)
            if bits.left < count:
                return [*found, table[states[1 - which]][0]]
            states[which] = base + bits.read(count)
    raise ValueError("too many codes of literals")


def _decoded(data: bytes, size: int, streams: int, codes: tuple[int, list[tuple[int, int]]]) -> bytes:
    most, table = codes
    out = bytearray()
    each = -(-size // 4) if streams == 4 else size
    ends = [0] if streams == 1 else [6]
    if streams == 4:
        ends += [ends[0] + sum(_sizes(data)[: i + 1]) for i in range(3)]
    ends.append(len(data))
    for index in range(streams):
        bits = Bits(data[ends[index] : ends[index + 1]])
        source, left = bits.data, bits.left + 8 * _PAD
        mask = (1 << most) - 1
        for _ in range(min(each, size - len(out))):
            at = left - most
            if at < 0:
                raise ValueError("literals are truncated")
            word = int.from_bytes(source[at >> 3 : (at >> 3) + 3], "little")
            symbol, count = table[word >> (at & 7) & mask]
            out.append(symbol)
            left -= count
        if left != 8 * _PAD:
            raise ValueError("a stream of bits has another length")
    return bytes(out)


def _sizes(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 2], "little") for at in (0, 2, 4)]


def _described(data: bytes, at: int, most: int, symbols: int) -> tuple[Table, int]:
    """A state machine from the probabilities of its symbols, and where they end."""
    stream = int.from_bytes(data[at : at + 512], "little")
    accuracy, place = (stream & 15) + 5, 4
    if accuracy > most:
        raise ValueError("a state machine is too large")
    left, found = 1 << accuracy, list[int]()
    while left > 0 and len(found) <= symbols:
        bits = (left + 1).bit_length()
        value = stream >> place & (1 << bits) - 1
        low, few = (1 << bits - 1) - 1, (1 << bits) - 2 - left
        place += bits
        if value & low < few:
            value, place = value & low, place - 1
        elif value > low:
            value -= few
        found.append(value - 1)
        left -= abs(value - 1)
        repeated = 3 if value == 1 else 0
        while repeated == 3:
            repeated = stream >> place & 3
            place += 2
            found += [0] * repeated
            if len(found) > symbols + 1:
                break
    if left or len(found) > symbols + 1 or at + (place + 7) // 8 > len(data):
        raise ValueError("a state machine is damaged")
    return _machine(accuracy, found), at + (place + 7) // 8


def _machine(accuracy: int, shares: Sequence[int]) -> Table:
    size = 1 << accuracy
    placed, high = [0] * size, size
    following = [abs(share) for share in shares]
    for symbol, share in enumerate(shares):
        if share < 0:
            high -= 1
            placed[high] = symbol
    at, step = 0, (size >> 1) + (size >> 3) + 3
    for symbol, share in enumerate(shares):
        for _ in range(share):
            placed[at] = symbol
            at = at + step & size - 1
            while at >= high:
                at = at + step & size - 1
    found = []
    for symbol in placed:
        state = following[symbol]
        following[symbol] += 1
        bits = accuracy - state.bit_length() + 1
        found.append((symbol, bits, (state << bits) - size))
    return accuracy, found


def _sequence_table(
    block: bytes, at: int, mode: int, kind: tuple[int, int, Table], before: Table | None
) -> tuple[Table, int]:
    most, symbols, usual = kind
    if mode == 0:
        return usual, at
    if mode == 1:
        if block[at] > symbols:
            raise ValueError("an unknown symbol")
        return (0, [(block[at], 0, 0)]), at + 1
    if mode == 2:
        return _described(block, at, most, symbols)
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
_KINDS: tuple[tuple[int, int, Table], ...] = (
    (9, 35, _machine(6, [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4])),
    (8, 31, _machine(5, [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5])),
    (9, 52, _machine(6, [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7])),
)
"""Of literal lengths, offsets and match lengths: bits of a state, last symbol, and the usual machine."""
