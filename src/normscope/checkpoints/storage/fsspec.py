"""Anything that fsspec can reach: s3://, gs://, sftp://, memory:// and so on."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from normscope.checkpoints.base import File, Folder
from normscope.checkpoints.ranges.file_version import replaced
from normscope.checkpoints.ranges.range_file import RangeFile
from normscope.checkpoints.ranges.retry import DEFAULT_RETRY, Fetch, Retry, Transient, error_summary
from normscope.checkpoints.storage.file_tree import FileTree, relative
from normscope.checkpoints.storage.s3 import S3Object, is_s3
from normscope.checkpoints.storage.web import SCHEMES, WebFolder, open_web
from normscope.checkpoints.storage.web_listing import open_listing
from normscope.errors import CheckpointError, MissingExtra
from normscope.plugins import require

RETRY: Retry = DEFAULT_RETRY
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError)
MOST_FILES = 300_000
_FLAT = frozenset(("s3", "gs", "gcs", "abfs", "az", "oss", "memory"))
"""Stores without real folders: one listing by prefix gives a thousand files per request."""
_TAGS = ("ETag", "etag", "md5Hash", "crc32c")
_VERSIONS = (
    *_TAGS, "VersionId", "generation", "content_md5", "checksum", "size",
    "LastModified", "last_modified", "mtime", "updated", "created", "ino",
)  # fmt: skip
"""Fields of a listing that change when a file is replaced; every store has some of them."""


class FsspecFolder(Folder):
    """A folder of an fsspec file system; in an object store, all below it is listed at once."""

    def __init__(
        self,
        filesystem: Any,
        path: str,
        name: str,
        tree: FileTree[dict[str, Any]] | None = None,
        prefix: str = "",
    ) -> None:
        self._filesystem, self._path, self.name = filesystem, path.rstrip("/"), name.rstrip("/")
        self._tree, self._prefix = tree, prefix
        self._entries: dict[str, dict[str, Any]] | None = None

    def names(self) -> Sequence[str]:
        """Names of the children; folders end with a slash."""
        return self._tree.names(self._prefix) if self._tree else sorted(self._list())

    def file(self, name: str) -> File:
        """The child file, with the size from the listing."""
        info = self._tree.files[self._prefix + name] if self._tree else self._list()[name]
        return open_url_file(self._filesystem, f"{self._path}/{name}", f"{self.name}/{name}", info)

    def folder(self, name: str) -> FsspecFolder:
        """The child folder, from the same listing if there is one."""
        prefix = f"{self._prefix}{name.rstrip('/')}/"
        path, shown = f"{self._path}/{name.rstrip('/')}", f"{self.name}/{name}"
        return FsspecFolder(self._filesystem, path, shown, self._tree, prefix)

    def list_all(self) -> FsspecFolder:
        """The same folder with everything below it listed, if the store can and that are not too many."""
        if not _FLAT & _protocols(self._filesystem):
            return self
        limit = {"max_items": MOST_FILES + 1} if is_s3(self._filesystem) else {}
        try:
            found = self._filesystem.find(self._path, detail=True, **limit)
        except Exception as error:  # each file system has its own exceptions
            raise CheckpointError(f"{self.name} cannot be listed: {error_summary(error)}.") from None
        if len(found) > MOST_FILES:
            return self  # then folder by folder
        files = relative(((path, dict(info)) for path, info in found.items()), self._path)
        return FsspecFolder(self._filesystem, self._path, self.name, FileTree(files))

    def _list(self) -> dict[str, dict[str, Any]]:
        if self._entries is None:
            try:
                listed = self._filesystem.ls(self._path, detail=True)
            except Exception as error:  # each file system has its own exceptions
                raise CheckpointError(f"{self.name} cannot be listed: {error_summary(error)}.") from None
            self._entries = {}
            for info in listed:
                name = str(info["name"]).rstrip("/").rsplit("/", 1)[-1]
                if name and str(info["name"]).rstrip("/") != self._path:
                    self._entries[name + ("/" if info.get("type") == "directory" else "")] = dict(info)
        return self._entries


def _protocols(filesystem: Any) -> frozenset[str]:
    protocol = getattr(filesystem, "protocol", ())
    return frozenset((protocol,) if isinstance(protocol, str) else protocol)


def open_url(url: str) -> Folder | tuple[FsspecFolder | WebFolder, str]:
    """The folder behind a URL; if it is a file, its folder and its name."""
    if url.lower().startswith(SCHEMES):
        return open_listing(url) if url.endswith("/") else open_web(url)
    fsspec = require("fsspec", "remote", f"Reading {url}")
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        filesystem.invalidate_cache()  # a listing from minutes ago may be out of date
        info = filesystem.info(path)
    except ImportError as error:
        raise MissingExtra(str(error.name or error), "remote", f"Reading {url}") from None
    except Exception as error:
        raise CheckpointError(f"{url} cannot be read: {error_summary(error)}.") from None
    if info.get("type") == "directory":
        return FsspecFolder(filesystem, path, url).list_all()
    parent = FsspecFolder(filesystem, path.rsplit("/", 1)[0], url.rsplit("/", 1)[0])
    return parent, path.rsplit("/", 1)[-1]


def open_url_file(filesystem: Any, path: str, name: str, info: Mapping[str, Any]) -> File:
    """The file at a path; `info` has its size and what identifies its version."""
    size = info.get("size")
    if size is None:
        raise CheckpointError(
            f"The server does not say how large {name} is, so it cannot be read in parts; download it first."
        )
    tag = next((str(info[key]).strip('"') for key in _TAGS if info.get(key)), "")
    pinned: Fetch
    if is_s3(filesystem):
        pinned = S3Object(filesystem, path, name, info, RETRY).fetch
    else:
        pinned = _Watched(filesystem, path, name, info).fetch
    return RangeFile(name, int(size), pinned, digest=tag, stamp=_stamp(info), retry=RETRY)


class _Watched:
    """A file that is asked about before its first range and after each one: any store, whatever it can pin.

    If the version is the same after a range has arrived, the range was of that version.
    """

    def __init__(self, filesystem: Any, path: str, name: str, listed: Mapping[str, Any]) -> None:
        self._filesystem, self._path, self._name = filesystem, path, name
        self._listed = {key: str(listed[key]) for key in (*_TAGS, "size") if listed.get(key)}
        self._version: dict[str, str] | None = None
        self._lock = threading.Lock()

    def fetch(self, start: int, stop: int) -> Iterable[bytes]:
        """Fetch a range, and refuse it if the file was replaced."""
        try:
            with self._lock:
                self._version = self._version or self._look(self._listed)
            data: bytes = self._filesystem.cat_file(self._path, start=start, end=stop)
            self._look(self._version)
        except FileNotFoundError:
            raise replaced(self._name, "it was moved or deleted") from None
        except _PERMANENT as error:
            raise CheckpointError(f"{self._name} cannot be read: {error_summary(error)}.") from None
        except CheckpointError:
            raise
        except Exception as error:  # time-outs, resets and server errors, as many libraries raise them
            if _status(error) in (400, 401, 403, 404, 416):
                raise CheckpointError(f"{self._name} cannot be read: {error_summary(error)}.") from None
            raise Transient(error_summary(error)) from None
        yield data

    def _look(self, before: Mapping[str, str]) -> dict[str, str]:
        """What the store says of the file now, in the fields that change when it is replaced."""
        self._filesystem.invalidate_cache(self._path)
        info = self._filesystem.info(self._path)
        now = {key: str(info[key]) for key in _VERSIONS if info.get(key) not in (None, "")}
        for key in before.keys() & now.keys():  # a field that only one of the two has says nothing
            if before[key] != now[key]:
                raise replaced(self._name, f"its {key} was {before[key][:100]} and is {now[key][:100]} now")
        return now


def _stamp(info: Mapping[str, Any]) -> str:
    """The second in which the file was written, which identifies it where there is no tag."""
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return str(int(value.timestamp()))
        if isinstance(value, int | float):
            return str(int(value))
    return ""


def _status(error: Exception) -> int | None:
    status = getattr(error, "status", None) or getattr(error, "code", None)
    return status if isinstance(status, int) else None
