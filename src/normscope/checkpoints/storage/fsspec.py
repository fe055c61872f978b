"""Anything that fsspec can reach: s3://, gs://, https://, memory:// and so on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from normscope.checkpoints.base import File, Folder
from normscope.checkpoints.storage.remote import RangeFile
from normscope.checkpoints.storage.retry import DEFAULT_RETRY, Retry, Transient, error_summary
from normscope.errors import CheckpointError, MissingExtra
from normscope.plugins import require

RETRY: Retry = DEFAULT_RETRY
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError)


class FsspecFolder(Folder):
    """A folder of an fsspec file system."""

    def __init__(self, filesystem: Any, path: str, name: str) -> None:
        self._filesystem, self._path, self.name = filesystem, path.rstrip("/"), name.rstrip("/")
        self._entries: dict[str, dict[str, Any]] | None = None

    def names(self) -> Sequence[str]:
        """Names of the children; folders end with a slash."""
        return sorted(self._list())

    def file(self, name: str) -> File:
        """The child file, with the size from the listing."""
        return open_url_file(
            self._filesystem, f"{self._path}/{name}", f"{self.name}/{name}", self._list()[name]
        )

    def folder(self, name: str) -> FsspecFolder:
        """The child folder."""
        return FsspecFolder(self._filesystem, f"{self._path}/{name}", f"{self.name}/{name}")

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


def open_url(url: str) -> FsspecFolder | tuple[FsspecFolder, str]:
    """The folder behind a URL; if it is a file, its folder and its name."""
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
        return FsspecFolder(filesystem, path, url)
    parent = FsspecFolder(filesystem, path.rsplit("/", 1)[0], url.rsplit("/", 1)[0])
    name = path.rsplit("/", 1)[-1]
    if filesystem.protocol in ("http", "https", ("http", "https")):
        parent._entries = {name: info}  # a web server may not be able to list its folders
    return parent, name


def open_url_file(filesystem: Any, path: str, name: str, info: dict[str, Any]) -> File:
    """The file at a path; `info` has its size and, if the server gives one, its entity tag."""
    size = info.get("size")
    if size is None:
        raise CheckpointError(
            f"The server does not say how large {name} is, so it cannot be read in parts; download it first."
        )

    def fetch(start: int, stop: int) -> Iterable[bytes]:
        try:
            yield filesystem.cat_file(path, start=start, end=stop)
        except _PERMANENT as error:
            raise CheckpointError(f"{name} cannot be read: {error_summary(error)}.") from None
        except Exception as error:  # time-outs, resets and server errors, as many libraries raise them
            if _status(error) in (400, 401, 403, 404, 416):
                raise CheckpointError(f"{name} cannot be read: {error_summary(error)}.") from None
            raise Transient(error_summary(error)) from None

    tag = next(
        (str(info[key]).strip('"') for key in ("ETag", "etag", "md5Hash", "crc32c") if info.get(key)), ""
    )
    return RangeFile(name, int(size), fetch, digest=tag, retry=RETRY)


def _status(error: Exception) -> int | None:
    status = getattr(error, "status", None) or getattr(error, "code", None)
    return status if isinstance(status, int) else None
