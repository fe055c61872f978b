"""Reads a msgpack file as a tree, without its arrays: those stay in the file, at a known place.

https://github.com/msgpack/msgpack/blob/master/spec.md. Counts and lengths are checked against the bytes that
are left before anything is made of them, and the depth and number of values are limited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import File

DEEPEST = 64
VALUES = 500_000
"""Values of one file; an array counts as two, however large it is."""
LONG_TEXT = 4096
"""Bytes of text from which on it is not kept: no name and no dtype is that long."""
_WINDOW = 1 << 14


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes, or a text too long to be a name, at start … stop−1 of the file."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Extension:
    """A value of a type that msgpack does not know, by its code."""

    code: int


class MsgpackReader:
    """Reads values from a range of a file, in windows; `extend` says what an extension becomes."""

    def __init__(self, file: File, extend: Callable[[MsgpackReader, int, int], Any] | None = None) -> None:
        self.file, self._extend = file, extend
        self.position, self.stop = 0, file.size
        self._values = VALUES
        self._window, self._start = b"", 0

    def whole(self) -> Any:
        """The one value that the file consists of."""
        value = self.value()
        if self.position != self.stop:
            raise ValueError(f"{self.stop - self.position:,} bytes after its end")
        return value

    def value(self, depth: int = 0) -> Any:
        """The next value; maps and arrays are read completely."""
        self._values -= 1
        if self._values < 0:
            raise ValueError(f"more than {VALUES:,} values")
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        kind, count = self.header()
        if kind == "number":
            return count
        if kind == "map":
            return self._map(count, depth)
        if kind == "array":
            self.check_count(count, 1)
            return [self.value(depth + 1) for _ in range(count)]
        return self._leaf(kind, count)

    def take(self, count: int) -> bytes:
        """The next few bytes."""
        start, self.position = self.position, self.position + self._checked(count)
        if start < self._start or self.position > self._start + len(self._window):
            end = min(self.stop, max(start + _WINDOW, self.position))
            self._window, self._start = self.file.peek(start, end), start
        return self._window[start - self._start : self.position - self._start]

    def skip(self, count: int) -> Blob:
        """Pass over bytes without reading them."""
        start, self.position = self.position, self.position + self._checked(count)
        return Blob(start, self.position)

    def blob(self) -> Blob:
        """The next value, which must be bytes or a text; it is passed over."""
        kind, count = self.header()
        if kind not in ("bytes", "text"):
            raise ValueError(f"a value at byte {self.position - 1:,} that is not bytes")
        return self.skip(count)

    def _checked(self, count: int) -> int:
        if count > self.stop - self.position:
            raise ValueError(f"truncated: {count:,} bytes at byte {self.position:,}")
        return count

    def _unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def header(self) -> tuple[str, int]:
        """What the next value is, and its number of entries or bytes; a small number is its own header."""
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return "number", code if code < 0x80 else code - 256
        for first, last, kind in _SHORT:
            if first <= code <= last:
                return kind, code - first
        kind, width, more = _LONG.get(code, ("", 0, 0))
        if not kind:
            raise ValueError(f"the code {code:#x} at byte {self.position - 1:,}")
        return kind, self._unsigned(width) if width else more

    def _leaf(self, kind: str, count: int) -> Any:
        if kind == "text":
            return self._text(count)
        if kind == "bytes":
            return self.skip(count)
        if kind == "extension":
            return self._extension(count)
        if kind == "constant":
            return (None, None, False, True)[count]
        data = self.take(count)
        if kind == "float":
            return struct.unpack(">f" if count == 4 else ">d", data)[0]
        return int.from_bytes(data, "big", signed=kind == "signed")

    def _text(self, count: int) -> str | Blob:
        return self.take(count).decode() if count <= LONG_TEXT else self.skip(count)

    def _extension(self, count: int) -> Any:
        code = self.take(1)[0]
        start = self.position
        self._checked(count)
        if self._extend is None:
            self.skip(count)
            return Extension(code)
        outer, left, self.stop = self.stop, self._values, start + count
        value = self._extend(self, code, count)
        self.stop, self._values = outer, left - 1
        if self.position != start + count:
            raise ValueError(f"an extension at byte {start:,} of another length than its content")
        return value

    def check_count(self, count: int, least: int) -> None:
        """ValueError if `count` entries of at least so many bytes do not fit into what is left."""
        if count * least > self.stop - self.position or count > self._values:
            raise ValueError(f"{count:,} entries at byte {self.position:,}, more than there can be")

    def _map(self, count: int, depth: int) -> dict[str, Any]:
        self.check_count(count, 2)
        result: dict[str, Any] = {}
        for _ in range(count):
            key = self._key(depth)
            if key in result:
                raise ValueError(f"the key {key[:80]!r} twice")
            result[key] = self.value(depth + 1)
        return result

    def _key(self, depth: int) -> str:
        key = self.value(depth + 1)
        if isinstance(key, str):
            return key
        if type(key) is int:
            return str(key)
        if isinstance(key, Blob) and key.stop - key.start <= LONG_TEXT:
            return self.file.peek(key.start, key.stop).decode()
        raise ValueError(f"a key at byte {self.position:,} that is no text")


_SHORT = ((0x80, 0x8F, "map"), (0x90, 0x9F, "array"), (0xA0, 0xBF, "text"))
_LONG = {
    0xC0: ("constant", 0, 0), 0xC2: ("constant", 0, 2), 0xC3: ("constant", 0, 3),
    0xC4: ("bytes", 1, 0), 0xC5: ("bytes", 2, 0), 0xC6: ("bytes", 4, 0),
    0xC7: ("extension", 1, 0), 0xC8: ("extension", 2, 0), 0xC9: ("extension", 4, 0),
    0xCA: ("float", 0, 4), 0xCB: ("float", 0, 8),
    0xCC: ("unsigned", 0, 1), 0xCD: ("unsigned", 0, 2), 0xCE: ("unsigned", 0, 4), 0xCF: ("unsigned", 0, 8),
    0xD0: ("signed", 0, 1), 0xD1: ("signed", 0, 2), 0xD2: ("signed", 0, 4), 0xD3: ("signed", 0, 8),
    0xD4: ("extension", 0, 1), 0xD5: ("extension", 0, 2), 0xD6: ("extension", 0, 4),
    0xD7: ("extension", 0, 8), 0xD8: ("extension", 0, 16),
    0xD9: ("text", 1, 0), 0xDA: ("text", 2, 0), 0xDB: ("text", 4, 0),
    0xDC: ("array", 2, 0), 0xDD: ("array", 4, 0), 0xDE: ("map", 2, 0), 0xDF: ("map", 4, 0),
}  # fmt: skip
"""Code → what it begins, the bytes of its count, and the count itself if it has none."""


def begins_as_tree(file: File) -> bool:
    """Whether a file begins like a map of maps whose first keys are text, down to the first other value."""
    reader = MsgpackReader(file)
    try:
        for _ in range(DEEPEST):
            kind, count = reader.header()
            if kind != "map":
                return reader.position > 2
            reader.check_count(count, 2)
            if not count or not _is_name(reader):
                return False
    except ValueError:
        return False
    return False


def _is_name(reader: MsgpackReader) -> bool:
    kind, count = reader.header()
    if kind != "text" or not 0 < count <= LONG_TEXT:
        return False
    return reader.take(count).decode().isprintable()
