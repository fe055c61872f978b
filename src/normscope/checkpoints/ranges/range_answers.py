"""Answers to range requests: what is believed, what is tried again, what is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime

from normscope.checkpoints.ranges.file_version import FileVersion, replaced
from normscope.checkpoints.ranges.retry import Transient
from normscope.errors import CheckpointError

BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))
_SPAN = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.IGNORECASE)
_TOTAL = re.compile(r"bytes \*/(\d{1,18})", re.IGNORECASE)
_QUOTA = re.compile(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})(?!\d)")

Headers = Mapping[str, str]
"""Headers of an answer: names in lower case, repeated ones joined by commas, so that they fail to match."""


def range_headers(start: int, stop: int, version: FileVersion | None = None) -> dict[str, str]:
    """The headers that ask for the bytes start … stop−1, uncompressed, of this version of the file."""
    asked = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
    return asked | (version.conditions if version else {})


def first_version(name: str, status: int, headers: Headers, stop: int) -> FileVersion:
    """The version of the file, from the first answer; the request was for its bytes 0 … stop−1."""
    check_status(name, status, headers)
    _check_encoding(name, headers)
    if status == 416:
        empty = _TOTAL.fullmatch(headers.get("content-range", ""))
        if empty and int(empty[1]) == 0:
            return FileVersion.of(0, headers)
        raise CheckpointError(
            f"{name} cannot be read: the server answered 416 to a request for its beginning."
        )
    if status == 200:
        size = _length(headers)
        if size is None:
            raise CheckpointError(f"{_unknown_size(name)} It also ignores range requests.")
        if size > stop:
            raise _without_ranges(name)
        return FileVersion.of(size, headers)
    span = _SPAN.fullmatch(headers.get("content-range", ""))
    if span is not None and span[3] == "*":
        raise CheckpointError(_unknown_size(name))
    size = int(span[3]) if span else 0
    version = FileVersion.of(size, headers)
    check_answer(name, status, headers, (0, min(stop, size)), version)
    return version


def check_answer(
    name: str, status: int, headers: Headers, asked: tuple[int, int], version: FileVersion
) -> int:
    """How many bytes the answer to a range request has, from `asked[0]` on: perhaps fewer than asked for."""
    start, stop = asked
    check_status(name, status, headers, version)
    _check_encoding(name, headers)
    version.check(name, headers)
    if status == 200:
        return _whole(name, headers, asked, version)
    span = _SPAN.fullmatch(headers.get("content-range", ""))
    if span is None or int(span[1]) != start or not start <= int(span[2]) < stop:
        given = headers.get("content-range", "")[:100] or "an unknown range"
        raise Transient(f"the server sent {given} for bytes {start}-{stop - 1}", distrusted=True)
    if span[3] != "*":
        version.check_size(name, int(span[3]))
    elif not version.pinned:
        raise Transient(
            "an answer says neither which version it is of nor how long the file is", distrusted=True
        )
    return _agreed(headers, int(span[2]) + 1 - start)


def check_status(name: str, status: int, headers: Headers, version: FileVersion | None = None) -> None:
    """Refuse every answer that has no bytes of the file; `version` is known after the first answer."""
    if status in BUSY:
        raise Transient(f"the server answered {status}", server_wait(headers))
    if version is not None and status in (404, 410):
        raise replaced(name, f"the server answers {status} now: it was moved or deleted")
    if version is not None and status in (412, 416):
        why = "it has another version" if status == 412 else "it is shorter now"
        raise replaced(name, f"the server answers {status}, because {why}")
    if status in (401, 403, 407):
        raise CheckpointError(f"{name} cannot be read: the server denies access (it answered {status}).")
    if status in (404, 410):
        raise CheckpointError(f"{name} cannot be read: the server does not have it (it answered {status}).")
    if status not in (200, 206, 416):
        raise CheckpointError(f"{name} cannot be read: the server answered {status}.")


def counted(pieces: Iterable[bytes], expected: int, deadline: float) -> Iterator[bytes]:
    """The pieces of a body, refused as soon as there is more than expected, or at the deadline."""
    left = expected
    for piece in pieces:
        if len(piece) > left:
            raise Transient("the server sent more bytes than requested", distrusted=True)
        left -= len(piece)
        yield piece
        if left and time.monotonic() > deadline:
            raise Transient("the answer took too long", slow=True)
    if left:
        raise Transient(f"the answer ended {left:,} bytes early")


def server_wait(headers: Headers) -> float | None:
    """Seconds to wait according to Retry-After or RateLimit; None if they say nothing."""
    text = headers.get("retry-after", "").strip()
    if text.replace(".", "", 1).isdigit() and text.isascii():
        return float(text[:12])
    if text:
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError):
            pass
    quota = _QUOTA.search(headers.get("ratelimit", ""))
    return float(quota[1]) if quota else None


def _whole(name: str, headers: Headers, asked: tuple[int, int], version: FileVersion) -> int:
    """The whole file instead of a part: accepted only if the whole file was asked for."""
    size = _length(headers)
    if size is not None:
        version.check_size(name, size)
    if asked != (0, version.size):
        raise _without_ranges(name)
    return version.size


def _agreed(headers: Headers, expected: int) -> int:
    """Refuse a length that the range cannot have; a shorter one is an answer that ends early."""
    given, length = headers.get("content-length"), _length(headers)
    if given is not None and (length is None or length > expected):
        raise Transient(
            f"the server announced {given[:30]} bytes for a range of {expected:,}", distrusted=True
        )
    return expected


def _length(headers: Headers) -> int | None:
    text = headers.get("content-length", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _check_encoding(name: str, headers: Headers) -> None:
    """A part of a compressed file cannot be decompressed, and its offsets mean something else."""
    encoding = headers.get("content-encoding", "").strip().lower()
    transfer = headers.get("transfer-encoding", "").strip().lower()
    if encoding not in ("", "identity") or transfer not in ("", "identity", "chunked"):
        raise CheckpointError(
            f"{name} cannot be read in parts: the server sends it compressed "
            f"({(encoding or transfer)[:50]}), although that was not asked for. Download it first."
        )


def _unknown_size(name: str) -> str:
    return f"The server does not say how large {name} is, so it cannot be read in parts; download it first."


def _without_ranges(name: str) -> CheckpointError:
    return CheckpointError(
        f"{name} cannot be read in parts: the server ignores range requests. Download it first, or serve it "
        "with a server that supports them (Python's http.server does not)."
    )
