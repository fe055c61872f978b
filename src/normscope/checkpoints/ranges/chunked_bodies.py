"""Bodies that are sent in chunks: an answer whose chunks have other sizes than they say is not believed.

Python's http.client skips whatever comes after a chunk, and takes "-5" or "0x10" for a size, so that it could
give the bytes between two chunks as values of a tensor. See RFC 9112, section 7.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from normscope.checkpoints.ranges.retry import Transient

LONGEST_LINE = 8192
"""Bytes of a line with a size, or of one after the last chunk."""
MOST_LINES = 100
"""Lines after the last chunk."""
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_ENDS = (b"\r\n", b"\n")


def chunk_bytes(stream: BinaryIO, piece: int) -> Iterator[bytes]:
    """The bytes of all chunks, at most `piece` of them at a time."""
    while size := _size(stream):
        while size:
            data: bytes = stream.read1(min(piece, size))  # type: ignore[attr-defined]
            if not data:
                raise Transient("the answer ended early")
            size -= len(data)
            yield data
        _check(_line(stream) in _ENDS)
    for _ in range(MOST_LINES):
        if _line(stream) in _ENDS:
            return
    raise Transient(f"the server sent more than {MOST_LINES} lines after its chunks", distrusted=True)


def _size(stream: BinaryIO) -> int:
    found = _SIZE.fullmatch(_line(stream))
    _check(found is not None)
    return int(found[1], 16) if found else 0


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline(LONGEST_LINE + 1)
    if not line:
        raise Transient("the answer ended early")
    return line


def _check(sound: bool) -> None:
    if not sound:
        raise Transient("the server sent chunks of other sizes than it says", distrusted=True)
