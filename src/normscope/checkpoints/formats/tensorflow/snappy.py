"""Snappy decompression, for index blocks: https://github.com/google/snappy/blob/main/format_description.txt."""

from __future__ import annotations

from normscope.checkpoints.formats.tensorflow.protobuf import read_varint


def decompress(data: bytes, limit: int) -> bytes:
    """The original bytes; ValueError if they would be more than `limit` or the data is damaged."""
    length, position = read_varint(data, 0)
    if length > limit:
        raise ValueError("a compressed block is too large")
    result = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        if tag & 3 == 0:
            count, position = _literal_length(data, position, tag >> 2)
            piece = data[position : position + count]
            if len(piece) != count:
                raise ValueError("a compressed block is cut short")
            result += piece
            position += count
        else:
            count, back, position = _copy(data, position, tag)
            _repeat(result, count, back)
        if len(result) > length:
            raise ValueError("a compressed block is longer than it says")
    if len(result) != length:
        raise ValueError("a compressed block is shorter than it says")
    return bytes(result)


def _literal_length(data: bytes, position: int, code: int) -> tuple[int, int]:
    if code < 60:
        return code + 1, position
    extra = code - 59
    return int.from_bytes(data[position : position + extra], "little") + 1, position + extra


def _copy(data: bytes, position: int, tag: int) -> tuple[int, int, int]:
    """Length, distance back, and where the next tag is."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[position], position + 1
    extra = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, int.from_bytes(data[position : position + extra], "little"), position + extra


def _repeat(result: bytearray, count: int, back: int) -> None:
    """Copy from `back` bytes ago; the source may run into what it writes."""
    if not 0 < back <= len(result):
        raise ValueError("a compressed block refers to before its start")
    start = len(result) - back
    while count > 0:
        piece = result[start : start + min(count, back)]
        result += piece
        start += len(piece)
        count -= len(piece)
