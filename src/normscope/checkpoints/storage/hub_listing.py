"""Listings of the hub, page by page: the files of a commit, and the commits of a branch.

The hub's own client would wait by itself while the hub limits requests, without a word and without a limit.
Here each page is a request of its own, with our retries and our patience. Entries of other types than the
hub's are refused, and so are listings that go on without end.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urljoin

from normscope.checkpoints.limits import is_text
from normscope.checkpoints.ranges.retry import Retry, Transient
from normscope.checkpoints.ranges.web_connections import origin
from normscope.checkpoints.storage.hub_calls import ask, hub_client, sentence, stream
from normscope.errors import CheckpointError

_T = TypeVar("_T")
MOST_FILES = 300_000
MOST_COMMITS = 20_000
MOST_PAGES = 3000
MOST_EMPTY = 10
"""Pages in a row that list nothing, and say that there are more."""
LARGEST_PAGE = 16_000_000
LONGEST_PATH = 4096
_MOST_BRACKETS, _MOST_COMMAS = 600_000, 2_000_000
"""Of a page: more would be gigabytes of Python objects."""
_LARGEST_ERROR = 100_000
_LARGEST_FILE = 2**62
_LONGEST_STEP = 18
_STEP = re.compile(
    r"\b(?:steps?|checkpoint|ckpt|iter(?:ation)?s?)[ _:=#-]*(\d{1,3}(?:,\d{3})+|\d+)(?![\d.])", re.I
)


@dataclass(frozen=True)
class HubFile:
    """A file of a commit: its size, and the hash of its content."""

    size: int
    digest: str


@dataclass(frozen=True)
class HubCommit:
    """A commit of a branch; `step` is the one that its message names, if it does."""

    commit: str
    title: str
    step: int | None


def resolve_revision(where: str, repository: str, revision: str, retry: Retry) -> str:
    """The commit that a branch or tag points to now, as the hub says."""
    path = f"api/models/{repository}/revision/{quote(revision, safe='')}"
    try:
        hub_client(".utils").validate_repo_id(repository)
    except ValueError as error:
        raise CheckpointError(f"{where} cannot be read: {sentence(error)}") from None
    info, _ = ask(where, partial(_read_page, where, f"{_endpoint()}/{path}", retry), retry)
    return _field(where, _entry(where, info), "sha", str)


def list_files(where: str, repository: str, commit: str, retry: Retry) -> dict[str, HubFile]:
    """All files of a commit by path, folders and all that is in them included."""
    found: dict[str, HubFile] = {}
    for item in _items(where, f"api/models/{repository}/tree/{commit}?recursive=true", MOST_FILES, retry):
        if item.get("type") == "file":
            path, size = _field(where, item, "path", str), _field(where, item, "size", int)
            named = item if item.get("lfs") is None else _entry(where, item["lfs"])
            digest = _field(where, named, "oid", str)
            if not 0 <= size < _LARGEST_FILE or not 0 < len(path) <= LONGEST_PATH:
                raise _unexpected(where, f"a file {path[:100]!r} of {size:,} bytes")
            found[path] = HubFile(size, digest)
    return found


def list_commits(where: str, repository: str, branch: str, retry: Retry) -> list[HubCommit]:
    """The commits of a branch, the latest first."""
    path = f"api/models/{repository}/commits/{quote(branch, safe='')}"
    commits = []
    for item in _items(where, path, MOST_COMMITS, retry):
        title = _field(where, item, "title", str) if "title" in item else ""
        commits.append(HubCommit(_field(where, item, "id", str), title, step_in_message(title)))
    return commits


def step_in_message(title: str) -> int | None:
    """The step that a commit's title names.

    >>> step_in_message("Training in progress, step 500"), step_in_message("Upload README.md")
    (500, None)
    """
    digits = {found.replace(",", "") for found in _STEP.findall(title)}
    steps = {int(each) for each in digits if len(each) <= _LONGEST_STEP}
    return steps.pop() if len(steps) == 1 else None


def list_refs(where: str, repository: str, retry: Retry) -> dict[str, str]:
    """The branches and tags by name, and the commits that they point to; a branch hides a tag of its name."""
    found: dict[str, str] = {}
    for page in _pages(where, f"api/models/{repository}/refs", retry):
        for kind in ("tags", "branches"):
            for ref in _list(where, _entry(where, page).get(kind, [])):
                found[_field(where, _entry(where, ref), "name", str)] = _field(
                    where, ref, "targetCommit", str
                )
        if len(found) > MOST_FILES:
            raise _too_many(where, MOST_FILES)
    return found


def _items(where: str, path: str, most: int, retry: Retry) -> Iterator[dict[str, Any]]:
    """The items of all pages."""
    count = 0
    for page in _pages(where, path, retry):
        count += len(_list(where, page))
        if count > most:
            raise _too_many(where, most)
        yield from (_entry(where, item) for item in page)


def _pages(where: str, path: str, retry: Retry) -> Iterator[Any]:
    """The pages of a listing; the token goes to the hub only, wherever a page says that the next one is."""
    url: str | None = f"{_endpoint()}/{path}"
    seen: set[str] = set()
    empty = 0
    while url:
        if url in seen or len(seen) >= MOST_PAGES or empty > MOST_EMPTY:
            raise CheckpointError(
                f"{where} cannot be read: its listing goes on without end (page {len(seen) + 1:,})."
            )
        seen.add(url)
        page, url = ask(where, partial(_read_page, where, url, retry), retry)
        empty = 0 if page else empty + 1
        yield page


def _endpoint() -> str:
    return str(hub_client(".constants").ENDPOINT)


def _read_page(where: str, url: str, retry: Retry) -> tuple[Any, str | None]:
    """The JSON of a page, and where the next one is."""
    deadline = time.monotonic() + retry.seconds(LARGEST_PAGE)
    with stream(where, url, {}, retry.idle) as answer:
        if answer.status_code != 200:
            _refuse(answer, _read_body(where, answer, _LARGEST_ERROR, deadline))
        body = _read_body(where, answer, LARGEST_PAGE, deadline)
        following = answer.links.get("next", {}).get("url")
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS or body.count(b",") > _MOST_COMMAS:
        raise _unexpected(where, f"too many entries in a page of {len(body):,} bytes")
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        raise _unexpected(where, "what is not JSON") from None
    after = urljoin(url, following) if following else None
    if after and origin(after) != origin(_endpoint()):
        raise CheckpointError(
            f"{where} cannot be read: its listing continues on another host ({after[:200]})."
        )
    return page, after


def _read_body(where: str, answer: Any, largest: int, deadline: float) -> bytes:
    body = bytearray()
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > largest:
            if answer.status_code != 200:
                return b""
            raise _unexpected(where, f"a page of more than {largest:,} bytes")
        if time.monotonic() > deadline:
            raise Transient("the answer took too long", slow=True)
    return bytes(body)


def _refuse(answer: Any, body: bytes) -> None:
    """Raise the hub's own error for a status, with what it says of it if that has the form that it should."""
    try:
        said = body if isinstance(json.loads(body), dict) else b""
    except (ValueError, RecursionError):
        said = b""
    headers = {key: value for key, value in answer.headers.items() if not key.lower().startswith("content-")}
    whole = type(answer)(answer.status_code, headers=headers, content=said, request=answer.request)
    hub_client(".utils").hf_raise_for_status(whole)
    raise ValueError(f"the hub answered {answer.status_code}")


def _list(where: str, page: Any) -> list[Any]:
    if not isinstance(page, list):
        raise _unexpected(where, f"{type(page).__name__} in place of a list")
    return page


def _entry(where: str, item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _unexpected(where, f"{type(item).__name__} in place of an object")
    return item


def _field(where: str, item: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    value = item.get(name)
    if type(value) is not kind or (isinstance(value, str) and not is_text(value)):
        raise _unexpected(where, f"{type(value).__name__} as the {name} of an entry")
    return value


def _unexpected(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where} cannot be read: the hub's answer contains {what}.")


def _too_many(where: str, most: int) -> CheckpointError:
    return CheckpointError(f"{where} has too many files or commits (limit {most:,}).")
