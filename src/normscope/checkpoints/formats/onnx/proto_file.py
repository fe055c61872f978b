"""Protocol-buffer messages in a file, walked without reading what is long: weights stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from normscope.checkpoints.base import File
from normscope.checkpoints.formats.tensorflow.protobuf import read_varint

_WINDOW, _FAR = 1 << 16, 1 << 20
"""Bytes that are read together on a local disk, and over a network."""
_FIELDS = 5_000_000
"""Fields of one file: a graph of 100,000 nodes has about two million."""
_SKIPPED, _TEXT = 4_096, 100_000
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field of a message: its number, its wire type, and a number or the place of its bytes."""

    number: int
    kind: int
    value: int
    start: int
    stop: int


class ProtoFile:
    """Reads a file's messages; together they may have so many fields."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._begin, self._data = 0, b""
        self._left = _FIELDS

    def fields(self, start: int, stop: int) -> Iterator[ProtoField]:
        """The fields of the message at these bytes, in order."""
        while start < stop:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"too many fields (limit {_FIELDS:,})")
            found = self._field(start, stop)
            yield found
            start = found.stop

    def _field(self, start: int, stop: int) -> ProtoField:
        head = self._near(start, min(start + 20, stop))
        tag, at = read_varint(head, 0)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            value, at = read_varint(head, at)
            return ProtoField(number, kind, value, start, start + at)
        if kind == LENGTH:
            value, at = read_varint(head, at)
        elif kind in (FIXED64, FIXED32):
            value = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        begin, end = start + at, start + at + value
        if end > stop:
            raise ValueError("a message is truncated")
        return ProtoField(number, kind, 0, begin, end)

    def text(self, field: ProtoField) -> str:
        """The text of a field."""
        if field.kind != LENGTH or field.stop - field.start > _TEXT:
            raise ValueError(f"a text is no text, or longer than {_TEXT:,} bytes")
        return self._near(field.start, field.stop).decode("utf-8", "replace")

    def integers(self, field: ProtoField, most: int) -> list[int]:
        """The signed integers of a repeated field: one, or several that are packed."""
        if field.kind == VARINT:
            return [_signed(field.value)]
        if field.kind != LENGTH or field.stop - field.start > 10 * most:
            raise ValueError(f"more than {most:,} integers")
        data, at, found = self._near(field.start, field.stop), 0, list[int]()
        while at < len(data):
            value, at = read_varint(data, at)
            found.append(_signed(value))
        return found

    def _near(self, start: int, stop: int) -> bytes:
        if not self._begin <= start <= stop <= self._begin + len(self._data):
            window = _FAR if self.file.remote else _WINDOW
            if self._begin + len(self._data) + _SKIPPED < start or start < self._begin:
                window //= 8  # after weights that were passed over
            end = min(self.file.size, max(stop, start + window))
            self._begin, self._data = start, self.file.peek(start, end)
        return self._data[start - self._begin : stop - self._begin]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
