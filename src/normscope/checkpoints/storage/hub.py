"""Hugging Face repositories: each revision is a checkpoint, read at the commit it points to.

hf://OWNER/NAME[@REVISION][/FOLDER]. Nothing is written to the hub's cache.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from normscope.checkpoints.storage import hub_files
from normscope.checkpoints.storage.hub_calls import ask, hub_client
from normscope.checkpoints.storage.hub_files import HubFolder
from normscope.errors import CheckpointError, UsageError
from normscope.words import some

SCHEME = "hf://"
MOST_FILES = 300_000
_LISTERS = 8
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """A repository, the revision in its address (if any), and a folder inside (or "")."""

    name: str
    revision: str | None
    folder: str


@dataclass(frozen=True)
class Revision:
    """A branch, a tag or a commit, and the commit that it pointed to when the hub listed it."""

    name: str
    commit: str | None = None


def parse_address(address: str) -> Repository:
    """Parse hf://OWNER/NAME[@REVISION][/FOLDER]."""
    parts = address.removeprefix(SCHEME).strip("/").split("/")
    if len(parts) < 2 or not all(parts):
        raise UsageError(f"{address} is not the address of a repository; expected hf://OWNER/NAME.")
    name, _, revision = "/".join(parts[:2]).partition("@")
    return Repository(name, revision or None, "/".join(parts[2:]))


def list_revisions(repository: Repository, patterns: str | Sequence[str]) -> list[Revision]:
    """The branches and tags of a repository that match one of the patterns."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    hub = hub_client()
    refs = ask(repository.name, lambda: hub.HfApi().list_repo_refs(repository.name), hub_files.RETRY)
    commits = {ref.name: ref.target_commit for ref in (*refs.tags, *refs.branches)}
    names = list(dict.fromkeys(ref.name for ref in (*refs.branches, *refs.tags)))
    found = [name for name in names if any(fnmatch.fnmatchcase(name, p) for p in wanted)]
    if not found:
        raise CheckpointError(
            f"{repository.name} has no revision that matches {' or '.join(wanted)}; it has {some(names, 5)}."
        )
    return [Revision(name, commits[name]) for name in found]


def open_revisions(repository: Repository, revisions: Sequence[Revision]) -> list[HubFolder]:
    """The files of each revision, listed by several threads."""
    with ThreadPoolExecutor(_LISTERS) as pool:
        return list(pool.map(lambda revision: _open_revision(repository, revision), revisions))


def find_commit(repository: str, revision: Revision) -> str:
    """The commit that a revision points to: asked for once, so that all files are of one commit."""
    for known in (revision.commit, revision.name):
        if known and _COMMIT.fullmatch(known):
            return known
    where = f"{SCHEME}{repository}@{revision.name}"
    hub = hub_client()
    info = ask(where, lambda: hub.HfApi().model_info(repository, revision=revision.name), hub_files.RETRY)
    if not _COMMIT.fullmatch(info.sha or ""):
        raise CheckpointError(f"{where} cannot be read: the hub does not say which commit it is.")
    return str(info.sha)


def _open_revision(repository: Repository, revision: Revision) -> HubFolder:
    hub = hub_client()
    where = f"{SCHEME}{repository.name}@{revision.name}"
    commit = find_commit(repository.name, revision)

    def listed() -> list[Any]:
        tree = hub.HfApi().list_repo_tree(repository.name, recursive=True, revision=commit)
        items = list(islice(tree, MOST_FILES + 1))
        if len(items) > MOST_FILES:
            raise CheckpointError(f"{where} has too many files (limit {MOST_FILES:,}).")
        return [item for item in items if isinstance(item, hub_client(".hf_api").RepoFile)]

    files = {item.path: item for item in ask(where, listed, hub_files.RETRY)}
    prefix = f"{repository.folder}/" if repository.folder else ""
    return HubFolder(where, repository.name, commit, files, prefix)
