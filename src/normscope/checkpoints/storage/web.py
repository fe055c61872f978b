"""Files on web servers: https:// and http://, read by range requests, always of one version."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from normscope.checkpoints.base import File, Folder
from normscope.checkpoints.ranges.file_version import FileVersion
from normscope.checkpoints.ranges.range_answers import (
    BUSY,
    check_answer,
    counted,
    first_version,
    range_headers,
    server_wait,
)
from normscope.checkpoints.ranges.range_file import RangeFile, header_guess
from normscope.checkpoints.ranges.redirects import (
    MOST_REDIRECTS,
    MOVED,
    redirect_target,
    too_many_redirects,
)
from normscope.checkpoints.ranges.retry import DEFAULT_RETRY, Retry, Transient, repeat
from normscope.checkpoints.ranges.web_answers import WebAnswer
from normscope.checkpoints.ranges.web_connections import (
    TimeLimits,
    Unreachable,
    basic,
    get,
    origin,
)
from normscope.errors import CheckpointError

SCHEMES = ("https://", "http://")
RETRY: Retry = DEFAULT_RETRY
_EXPIRED = frozenset((401, 403, 404, 410))


class WebFolder(Folder):
    """The one file that an address names: a web server need not be able to list its folders."""

    def __init__(self, url: str) -> None:
        self.name, _, self._file = url.rpartition("/")
        self._opened: _OpenedFile | None = _open(url)
        self._url = url
        self.notes = () if self._opened.version.pinned else (_unpinned(url),)

    def names(self) -> Sequence[str]:
        """The name of the file."""
        return [self._file]

    def file(self, name: str) -> File:
        """The file; each call but the first asks the server again which version it has."""
        opened, self._opened = self._opened or _open(self._url), None
        version = opened.version
        file = RangeFile(
            self._url,
            version.size,
            opened.source.fetch,
            digest=version.digest,
            stamp=version.modified,
            retry=RETRY,
        )
        file.keep_beginning(opened.beginning)
        return file

    def folder(self, name: str) -> WebFolder:
        """There are none."""
        raise KeyError(name)


def open_web(url: str) -> tuple[WebFolder, str]:
    """The folder of the file at a URL, and the file's name."""
    folder = WebFolder(url)
    return folder, folder.names()[0]


@dataclass(frozen=True)
class WebPage:
    """A whole page: its status and text, and whether it is HTML, or from a server that speaks S3."""

    status: int
    text: str
    is_html: bool
    is_s3: bool


def read_page(url: str, largest: int) -> WebPage:
    """Read a page of at most so many bytes, with the retries, redirects and credentials of files."""
    source = _WebSource(url)

    def once() -> WebPage:
        limits = _limits(largest)
        with source._ask({"Accept-Encoding": "identity"}, limits) as answer:
            if answer.status in BUSY:
                raise Transient(f"the server answered {answer.status}", server_wait(answer.headers))
            body = bytearray()
            for piece in answer.pieces():
                body += piece
                if len(body) > largest:
                    raise CheckpointError(f"{url} is not a listing: it has more than {largest:,} bytes.")
            kind = answer.headers.get("content-type", "")
            s3 = any(name.startswith("x-amz-") for name in answer.headers) or "xml" in kind
            good = answer.status == 200 and "html" in kind
            return WebPage(answer.status, body.decode("utf-8", "replace"), good, s3)

    return repeat(once, url, RETRY)


@dataclass(frozen=True)
class _OpenedFile:
    """Where to fetch ranges from, the version that is read, and its first bytes."""

    source: _WebSource
    version: FileVersion
    beginning: bytes


def _open(url: str) -> _OpenedFile:
    if not urlsplit(url).hostname:
        raise CheckpointError(f"{url} cannot be read: it has no host name.")
    source = _WebSource(url)

    def once() -> _OpenedFile:
        try:
            version, beginning = source.begin()
        except Unreachable as error:  # the address is probably wrong: do not insist
            raise CheckpointError(f"{url} cannot be read: {error}.") from None
        return _OpenedFile(source, version, beginning)

    return repeat(once, url, RETRY)


class _WebSource:
    """Fetches ranges of one file from where the server last redirected to."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._location = url
        self._version: FileVersion | None = None

    def begin(self) -> tuple[FileVersion, bytes]:
        """The version of the file, and its first bytes: one request, from which both follow."""
        first = header_guess.nbytes
        limits = _limits(first)
        with self._ask(range_headers(0, first), limits) as answer:
            version = first_version(self._url, answer.status, answer.headers, first)
            expected = min(first, version.size)
            if expected:
                expected = check_answer(self._url, answer.status, answer.headers, (0, expected), version)
            beginning = b"".join(counted(answer.pieces(), expected, limits.deadline)) if expected else b""
        self._version = version
        return version, beginning

    def fetch(self, start: int, stop: int) -> Iterable[bytes]:
        """Make one range request for the version that was opened."""
        version = self._version
        assert version is not None
        limits = _limits(stop - start)
        with self._ask(range_headers(start, stop, version), limits) as answer:
            expected = check_answer(self._url, answer.status, answer.headers, (start, stop), version)
            yield from counted(answer.pieces(), expected, limits.deadline)
        if expected < stop - start:
            raise Transient("the server sent a part of the range", 0.0)

    @contextmanager
    def _ask(self, headers: Mapping[str, str], limits: TimeLimits) -> Iterator[WebAnswer]:
        """The answer of the last location, or of where it redirects to; one that has expired is renewed."""
        for followed in range(MOST_REDIRECTS + 1):
            with get(_without_user(self._location), {**headers, **self._credentials()}, limits) as answer:
                if answer.status in _EXPIRED and not followed and self._location != self._url:
                    self._location = self._url
                    raise Transient(f"the storage answered {answer.status}", 0.0)
                if answer.status not in MOVED:
                    yield answer
                    return
                target = answer.headers.get("location", "")
            self._location = redirect_target(self._url, self._location, target)
        self._location = self._url
        raise too_many_redirects(self._url)

    def _credentials(self) -> dict[str, str]:
        """The user and password in the address, for its own server only."""
        given = urlsplit(self._url)
        if given.username and origin(self._url) == origin(self._location):
            return {"Authorization": basic(given)}
        return {}


def _limits(nbytes: int) -> TimeLimits:
    return TimeLimits(RETRY.idle, time.monotonic() + RETRY.seconds(nbytes))


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def _unpinned(url: str) -> str:
    return (
        f"the server of {url} gives neither an ETag nor a Last-Modified header: a file that is replaced by "
        "another of equal length while it is read would not be noticed"
    )
