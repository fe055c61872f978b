"""Listings of the hub, page by page: the files of a commit, and the commits of a branch.

The hub's own client would wait by itself while the hub limits requests, without a word and without a limit.
Here each page is a request of its own, with our retries and our patience.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urljoin

from normscope.checkpoints.ranges.retry import Retry
from normscope.checkpoints.ranges.web_connections import origin
from normscope.checkpoints.storage.hub_calls import ask, hub_client
from normscope.errors import CheckpointError

MOST_FILES = 300_000
MOST_COMMITS = 20_000
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


def list_files(where: str, repository: str, commit: str, retry: Retry) -> dict[str, HubFile]:
    """All files of a commit by path, folders and all that is in them included."""
    found: dict[str, HubFile] = {}
    for item in _items(where, f"api/models/{repository}/tree/{commit}?recursive=true", MOST_FILES, retry):
        if item.get("type") == "file":
            lfs = item.get("lfs") or {}
            found[str(item["path"])] = HubFile(int(item["size"]), str(lfs.get("oid") or item["oid"]))
    return found


def list_commits(where: str, repository: str, branch: str, retry: Retry) -> list[HubCommit]:
    """The commits of a branch, the latest first."""
    path = f"api/models/{repository}/commits/{quote(branch, safe='')}"
    return [
        HubCommit(str(item["id"]), str(item.get("title", "")), step_in_message(str(item.get("title", ""))))
        for item in _items(where, path, MOST_COMMITS, retry)
    ]


def step_in_message(title: str) -> int | None:
    """The step that a commit's title names.

    >>> step_in_message("Training in progress, step 500"), step_in_message("Upload README.md")
    (500, None)
    """
    steps = {int(found.replace(",", "")) for found in _STEP.findall(title)}
    return steps.pop() if len(steps) == 1 else None


def list_refs(where: str, repository: str, retry: Retry) -> dict[str, str]:
    """The branches and tags by name, and the commits that they point to; a branch hides a tag of its name."""
    found: dict[str, str] = {}
    for page in _pages(where, f"api/models/{repository}/refs", retry):
        for kind in ("tags", "branches"):
            found |= {str(ref["name"]): str(ref["targetCommit"]) for ref in page.get(kind, ())}
    return found


def _items(where: str, path: str, most: int, retry: Retry) -> Iterator[dict[str, Any]]:
    """The items of all pages."""
    count = 0
    for page in _pages(where, path, retry):
        count += len(page)
        if count > most:
            raise CheckpointError(f"{where} has too many files or commits (limit {most:,}).")
        yield from page


def _pages(where: str, path: str, retry: Retry) -> Iterator[Any]:
    """The pages of a listing; the token goes to the hub only, wherever a page says that the next one is."""
    endpoint = str(hub_client(".constants").ENDPOINT)
    url: str | None = f"{endpoint}/{path}"
    while url:
        if origin(url) != origin(endpoint):
            raise CheckpointError(
                f"{where} cannot be read: its listing continues on another host ({url[:200]})."
            )
        answer = ask(where, partial(_page, url), retry)
        yield answer.json()
        following = answer.links.get("next", {}).get("url")
        url = urljoin(url, following) if following else None


def _page(url: str) -> Any:
    utils = hub_client(".utils")
    answer = hub_client().get_session().get(url, headers=utils.build_hf_headers())
    utils.hf_raise_for_status(answer)
    return answer
