"""The two codes of Zstandard: state machines whose symbols take parts of bits, and Huffman's for literals.

https://www.rfc-editor.org/rfc/rfc8878#name-entropy-encoding
"""

from __future__ import annotations

from collections.abc import Sequence

_PAD = 8
Machine = tuple[int, list[tuple[int, int, int]]]
"""The bits of a state; symbol, bits to read and base of the next state of each."""
Literals = tuple[int, list[tuple[int, int]]]
"""How many bits are looked at; symbol and length of each code that they can begin with."""


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


def read_machine(data: bytes, at: int, most: int, symbols: int) -> tuple[Machine, int]:
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
    return machine(accuracy, found), at + (place + 7) // 8


def machine(accuracy: int, shares: Sequence[int]) -> Machine:
    """A state machine from how many of its states each symbol has; −1 is one, at the end."""
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


def read_literal_codes(data: bytes) -> tuple[Literals, int]:
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
    (accuracy, table), at = read_machine(data, 0, 6, 255)
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


def decoded_literals(data: bytes, size: int, streams: int, codes: Literals) -> bytes:
    """Unpack literals from one stream, or from four that are stored one after the other."""
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
