"""TensorFlow's keys of slices of variables: an encoding whose bytes sort like the values.

tensorflow/core/lib/strings/ordered_code.cc
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ESCAPES = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}


def slice_key(name: bytes, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The key of a slice: 0, the name, the number of axes, and start and length on each axis."""
    parts: Iterable[bytes] = (_signed(start) + _signed(length) for start, length in ranges)
    return _unsigned(0) + _string(name) + _unsigned(len(ranges)) + b"".join(parts)


def _string(value: bytes) -> bytes:
    """The bytes, then 0 1; a 0 inside becomes 0 255, a 255 becomes 255 0."""
    return b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in value) + b"\0\1"


def _unsigned(value: int) -> bytes:
    """The number of bytes, then the bytes in big-endian order."""
    length = (value.bit_length() + 7) // 8
    return bytes([length]) + value.to_bytes(length, "big")


def _signed(value: int) -> bytes:
    """Big-endian two's complement with the first n bits inverted, where n is the number of bytes."""
    magnitude = ~value if value < 0 else value
    length = magnitude.bit_length() // 7 + 1
    header = ((1 << length) - 1) << (8 * length - length)
    return ((value & ((1 << 8 * length) - 1)) ^ header).to_bytes(length, "big")
