"""The files of one commit of a Hugging Face repository, read by HTTP range requests.

The hub redirects to storage. Its token is sent to the hub, also along redirects, and to no other host.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from normscope.checkpoints.base import File, Folder
from normscope.checkpoints.ranges.file_version import FileVersion, replaced
from normscope.checkpoints.ranges.range_answers import BUSY, check_answer, counted, range_headers
from normscope.checkpoints.ranges.range_file import RangeFile
from normscope.checkpoints.ranges.redirects import redirect_target
from normscope.checkpoints.ranges.retry import DEFAULT_RETRY, Retry, Transient, error_summary
from normscope.checkpoints.storage.file_tree import FileTree
from normscope.checkpoints.storage.hub_calls import ask, hub_client, lower_case, stream
from normscope.checkpoints.storage.hub_listing import HubFile
from normscope.errors import CheckpointError, ReplacedCheckpoint

RETRY: Retry = DEFAULT_RETRY
_EXPIRED = frozenset((401, 403, 410))
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class HubFolder(Folder):
    """A folder of one commit; the whole tree is listed with one request.

    `name` is the address under which the user knows it, with the name of a branch or tag.
    """

    def __init__(self, name: str, repository: str, commit: str, tree: FileTree[HubFile], prefix: str) -> None:
        self._root, self._repository, self._commit = name, repository, commit
        self._tree, self._prefix = tree, prefix
        self.name = f"{name}/{prefix}".rstrip("/")

    @property
    def pinned(self) -> str:
        """The address with the commit instead of the name of a branch or tag."""
        return f"hf://{self._repository}@{self._commit}/{self._prefix}".rstrip("/")

    def as_file(self) -> tuple[HubFolder, str] | None:
        """The folder around and the name, if the address is that of a file and not of a folder."""
        path = self._prefix.rstrip("/")
        head, slash, name = path.rpartition("/")
        around = HubFolder(self._root, self._repository, self._commit, self._tree, head + slash)
        return (around, name) if path in self._tree.files else None

    def names(self) -> Sequence[str]:
        """Names of the children; folders end with a slash."""
        return self._tree.names(self._prefix)

    def file(self, name: str) -> File:
        """The child file, with the size and hash from the listing."""
        path = self._prefix + name
        info = self._tree.files[path]
        url = hub_client().hf_hub_url(self._repository, path, revision=self._commit)
        source = _HubSource(f"{self.name}/{name}", url, info.size, info.digest)
        return RangeFile(f"{self.name}/{name}", info.size, source.fetch, digest=info.digest, retry=RETRY)

    def folder(self, name: str) -> HubFolder:
        """The child folder, from the same listing."""
        prefix = f"{self._prefix}{name.rstrip('/')}/"
        return HubFolder(self._root, self._repository, self._commit, self._tree, prefix)


class _HubSource:
    """Fetches ranges of one file from the address that the hub last gave for it.

    The commit and the hash of the content say which version it is; what the storage calls it may change
    with the address.
    """

    def __init__(self, name: str, url: str, size: int, digest: str) -> None:
        self._name, self._url, self._digest = name, url, digest
        self._version = FileVersion(size)
        self._location: str | None = None
        self._tag = ""
        self._lock = threading.Lock()

    def fetch(self, start: int, stop: int) -> Iterable[bytes]:
        """Make one range request; a signed address that has expired is renewed by the next attempt."""
        url = self._locate()
        headers = range_headers(start, stop)
        deadline = time.monotonic() + RETRY.seconds(stop - start)
        try:
            with stream(self._name, url, headers, RETRY.idle) as answer:
                expected = self._check(answer.status_code, lower_case(answer.headers), (start, stop))
                yield from counted(answer.iter_raw(), expected, deadline)
        except (Transient, CheckpointError):
            raise
        except Exception as error:  # depends on the HTTP library that the hub's client uses
            raise Transient(error_summary(error), distrusted=_is_misframed(error)) from None
        if expected < stop - start:
            raise Transient("the server sent a part of the range", 0.0)

    def _locate(self) -> str:
        """The address of the file's bytes; the hub must still call the content by the hash it listed."""
        with self._lock:
            if self._location is None:
                found = ask(self._name, self._metadata, RETRY)
                self._check_metadata(found)
                self._location = redirect_target(self._name, self._url, found.location)
                self._tag = ""
            return self._location

    def _metadata(self) -> Any:
        return hub_client().get_hf_file_metadata(self._url, timeout=RETRY.idle)

    def _check_metadata(self, found: Any) -> None:
        tag, digest = found.etag or "", self._digest
        if _HASH.fullmatch(tag) and len(tag) == len(digest) and tag != digest:
            raise replaced(self._name, f"its hash was {digest} and is now {tag}")
        if found.size is not None:
            self._version.check_size(self._name, found.size)

    def _check(self, status: int, headers: dict[str, str], asked: tuple[int, int]) -> int:
        """Like check_answer; a commit does not change, so the hub is asked again where the bytes are."""
        try:
            if status in _EXPIRED and self._location != self._url:
                raise Transient(f"the storage answered {status}", 0.0)
            expected = check_answer(self._name, status, headers, asked, self._version)
            tag = headers.get("etag", "")
            if self._tag and tag and tag != self._tag:
                raise Transient("the storage has another version than before", distrusted=True)
        except Transient:
            self._location = None if status not in BUSY else self._location
            raise
        except ReplacedCheckpoint:
            self._location = None
            given = headers.get("content-range", "")[:100]
            raise Transient(f"the storage answered {status} {given}".rstrip(), distrusted=True) from None
        self._tag = self._tag or tag
        return expected


def _is_misframed(error: Exception) -> bool:
    """Whether chunks had other sizes than they said, so that bytes between them may be among those read."""
    cut = "closed" in str(error)
    return type(error).__name__ == "RemoteProtocolError" and not cut
