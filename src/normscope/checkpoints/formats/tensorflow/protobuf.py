"""The protocol-buffer wire format, as far as a checkpoint index needs it.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections import defaultdict

FieldValue = int | bytes
MOST_FIELDS = 300_000
"""Of one message: a slice per field is the most that real ones have."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read an integer stored with seven bits per byte; returns it and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a varint is longer than 64 bits")


def read_message(data: bytes) -> dict[int, list[FieldValue]]:
    """Field number → values in order; nested messages remain bytes."""
    fields: defaultdict[int, list[FieldValue]] = defaultdict(list)
    position = count = 0
    while position < len(data):
        count += 1
        if count > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS:,} fields")
        tag, position = read_varint(data, position)
        value: FieldValue
        kind = tag & 7
        if tag >> 3 == 0:
            raise ValueError("a field has the number 0")
        if kind == 0:
            value, position = read_varint(data, position)
        else:
            width, position = read_varint(data, position) if kind == 2 else (_FIXED[kind], position)
            value, position = data[position : position + width], position + width
            if position > len(data):
                raise ValueError("a message is truncated")
        fields[tag >> 3].append(value)
    return fields


class _Widths(dict[int, int]):
    def __missing__(self, kind: int) -> int:
        raise ValueError(f"unknown wire type {kind}")


_FIXED = _Widths({1: 8, 5: 4})


def integer_field(fields: dict[int, list[FieldValue]], field: int, default: int = 0) -> int:
    """The last value of an integer field, as a signed 64-bit integer."""
    value = fields[field][-1] if fields.get(field) else default
    if not isinstance(value, int):
        raise ValueError("an integer field contains bytes")
    return value - (1 << 64) if value >> 63 else value


def message_field(fields: dict[int, list[FieldValue]], field: int) -> list[bytes]:
    """All values of a repeated message field."""
    found = fields.get(field, [])
    return [value for value in found if isinstance(value, bytes)]
