"""Hugging Face repositories: each revision is a checkpoint, files are read by HTTP range requests.

hf://OWNER/NAME[@REVISION][/FOLDER]. Nothing is written to the hub's cache.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import File, Folder
from normscope.checkpoints.storage.remote import RangeFile
from normscope.checkpoints.storage.retry import DEFAULT_RETRY, Retry, Transient, error_summary, repeat
from normscope.errors import CheckpointError, UsageError
from normscope.plugins import require
from normscope.words import some

SCHEME = "hf://"
_BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))
_LISTERS = 8
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Repository:
    """A repository, the revision in its address (if any), and a folder inside (or "")."""

    name: str
    revision: str | None
    folder: str


def parse_address(address: str) -> Repository:
    """Parse hf://OWNER/NAME[@REVISION][/FOLDER]."""
    parts = address.removeprefix(SCHEME).strip("/").split("/")
    if len(parts) < 2 or not all(parts):
        raise UsageError(f"{address} is not the address of a repository; expected hf://OWNER/NAME.")
    name, _, revision = "/".join(parts[:2]).partition("@")
    return Repository(name, revision or None, "/".join(parts[2:]))


def list_revisions(repository: Repository, patterns: str | Sequence[str]) -> list[str]:
    """The branches and tags of a repository that match one of the patterns."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    hub = _hub()
    refs = _ask(repository.name, lambda: hub.HfApi().list_repo_refs(repository.name))
    names = [ref.name for ref in (*refs.branches, *refs.tags)]
    found = [name for name in dict.fromkeys(names) if any(fnmatch.fnmatchcase(name, p) for p in wanted)]
    if not found:
        raise CheckpointError(
            f"{repository.name} has no revision that matches {' or '.join(wanted)}; it has {some(names, 5)}."
        )
    return found


def open_revisions(repository: Repository, revisions: Sequence[str]) -> list[HubFolder]:
    """The files of each revision, listed by several threads."""
    with ThreadPoolExecutor(_LISTERS) as pool:
        return list(pool.map(lambda revision: _open_revision(repository, revision), revisions))


class HubFolder(Folder):
    """A folder of one revision; the whole tree is listed with one request."""

    def __init__(self, repository: Repository, revision: str, files: dict[str, Any], prefix: str) -> None:
        self._repository, self._revision, self._files, self._prefix = repository, revision, files, prefix
        self.name = f"{SCHEME}{repository.name}@{revision}/{prefix}".rstrip("/")

    def names(self) -> Sequence[str]:
        """Names of the children; folders end with a slash."""
        rests = (path.removeprefix(self._prefix) for path in self._files if path.startswith(self._prefix))
        return sorted({head + slash for head, slash, _ in (rest.partition("/") for rest in rests)})

    def file(self, name: str) -> File:
        """The child file, with the size and hash from the listing."""
        path = self._prefix + name
        info = self._files[path]
        fetcher = _RangeFetcher(self._repository.name, self._revision, path)
        digest = info.lfs.sha256 if info.lfs else info.blob_id
        return RangeFile(f"{self.name}/{name}", info.size, fetcher.fetch, digest=digest, retry=RETRY)

    def folder(self, name: str) -> HubFolder:
        """The child folder, from the same listing."""
        return HubFolder(self._repository, self._revision, self._files, f"{self._prefix}{name.rstrip('/')}/")


RETRY: Retry = DEFAULT_RETRY


class _RangeFetcher:
    """Fetches ranges of one file from the address that the hub last gave for it."""

    def __init__(self, repository: str, revision: str, path: str) -> None:
        self._url = _hub().hf_hub_url(repository, path, revision=revision)
        self._name = f"{SCHEME}{repository}@{revision}/{path}"
        self._location: str | None = None
        self._lock = threading.Lock()

    def fetch(self, start: int, stop: int) -> Iterable[bytes]:
        """Make one range request; a signed address that has expired is renewed by the next attempt."""
        url, on_hub = self._locate()
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        if on_hub:  # the token is for the hub, not for the storage it redirects to
            headers |= _hub(".utils").build_hf_headers()
        try:
            with _hub().get_session().stream("GET", url, headers=headers, timeout=_TIMEOUT) as answer:
                self._check(answer, start, stop)
                yield from answer.iter_raw()
        except (Transient, CheckpointError):
            raise
        except Exception as error:  # depends on the HTTP library that the hub's client uses
            raise Transient(error_summary(error)) from None

    def _locate(self) -> tuple[str, bool]:
        """The address of the file's bytes, and whether the hub itself serves them."""
        with self._lock:
            if self._location is None:
                found = _ask(self._name, lambda: _hub().get_hf_file_metadata(self._url))
                self._location = found.location
            return self._location, self._location == self._url

    def _check(self, answer: Any, start: int, stop: int) -> None:
        status = answer.status_code
        if status in _BUSY:
            raise Transient(f"the server answered {status}", _retry_after(answer.headers))
        if status in (401, 403, 410) and self._location != self._url:
            self._location = None
            raise Transient(f"the storage answered {status}", 0.0)
        if status not in (200, 206):
            raise CheckpointError(f"{self._name} cannot be read: the server answered {status}.")
        span = answer.headers.get("Content-Range", "")
        if status == 200 and start > 0:
            raise CheckpointError(f"{self._name} cannot be read in parts: the server ignores range requests.")
        if status == 206 and not span.startswith(f"bytes {start}-{stop - 1}/"):
            raise Transient(f"the server sent {span or 'an unknown range'} for bytes {start}-{stop - 1}")


def _open_revision(repository: Repository, revision: str) -> HubFolder:
    hub = _hub()
    where = f"{SCHEME}{repository.name}@{revision}"

    def listed() -> list[Any]:
        tree: Iterator[Any] = hub.HfApi().list_repo_tree(repository.name, recursive=True, revision=revision)
        return [item for item in tree if isinstance(item, _hub(".hf_api").RepoFile)]

    files = {item.path: item for item in _ask(where, listed)}
    return HubFolder(repository, revision, files, f"{repository.folder}/" if repository.folder else "")


def _ask(name: str, call: Callable[[], Any]) -> Any:
    """Call the hub's API, and retry while the hub is busy."""
    errors = _hub(".errors")

    def once() -> Any:
        try:
            return call()
        except errors.HfHubHTTPError as error:
            status = getattr(error.response, "status_code", None)
            if status in _BUSY:
                raise Transient(
                    f"the server answered {status}", _retry_after(error.response.headers)
                ) from None
            raise CheckpointError(f"{name} cannot be read: {str(error).splitlines()[0][:300]}") from None
        except (errors.OfflineModeIsEnabled, ValueError) as error:
            raise CheckpointError(f"{name} cannot be read: {str(error)[:300]}") from None
        except Exception as error:
            raise Transient(error_summary(error)) from None

    return repeat(once, name, RETRY)


def _retry_after(headers: Any) -> float | None:
    """Seconds to wait according to the server; None for a date, so that our own backoff applies."""
    text = str(headers.get("Retry-After", ""))
    return float(text) if text.replace(".", "", 1).isdigit() else None


def _hub(part: str = "") -> Any:
    """huggingface_hub, or one of its modules: it does not import them all by itself."""
    return require(f"huggingface_hub{part}", "hf", "Reading a Hugging Face repository")
