"""Hugging Face repositories: each revision is a checkpoint, read at the commit it points to.

hf://OWNER/NAME[@REVISION][/FOLDER]. Nothing is written to the hub's cache.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from normscope.checkpoints.storage import hub_files
from normscope.checkpoints.storage.file_tree import FileTree
from normscope.checkpoints.storage.hub_files import HubFolder
from normscope.checkpoints.storage.hub_listing import (
    HubCommit,
    list_commits,
    list_files,
    list_refs,
    resolve_revision,
)
from normscope.errors import CheckpointError, UsageError
from normscope.words import some

SCHEME = "hf://"
COMMITS = "commits:"
"""Before the name of a branch, in --revisions: its commits are the checkpoints."""
_LISTERS = 24
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """A repository, the revision in its address (if any), and a folder inside (or "")."""

    name: str
    revision: str | None
    folder: str


@dataclass(frozen=True)
class Revision:
    """A branch, a tag or a commit, and the commit that it pointed to when the hub listed it.

    `label` says the step, if that is not in the name.
    """

    name: str
    commit: str | None = None
    label: str = ""


def parse_address(address: str) -> Repository:
    """Parse hf://OWNER/NAME[@REVISION][/FOLDER]."""
    parts = address.removeprefix(SCHEME).strip("/").split("/")
    if len(parts) < 2 or not all(parts):
        raise UsageError(f"{address} is not the address of a repository; expected hf://OWNER/NAME.")
    name, _, revision = "/".join(parts[:2]).partition("@")
    return Repository(name, revision or None, "/".join(parts[2:]))


def find_revisions(repository: Repository, patterns: str | Sequence[str]) -> tuple[list[Revision], str]:
    """The revisions that patterns name, or the commits of a branch; and a sentence about what is left out."""
    if isinstance(patterns, str) and patterns.startswith(COMMITS):
        branch = patterns.removeprefix(COMMITS) or repository.revision or "main"
        return list_branch_commits(repository, branch)
    return list_revisions(repository, patterns), ""


def open_folder(repository: Repository) -> HubFolder:
    """The files of the revision in an address, main if it has none."""
    return _open_revision(repository, Revision(repository.revision or "main"))


def list_revisions(repository: Repository, patterns: str | Sequence[str]) -> list[Revision]:
    """The branches and tags of a repository that match one of the patterns."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    commits = list_refs(repository.name, repository.name, hub_files.RETRY)
    names = list(commits)
    found = [name for name in names if any(fnmatch.fnmatchcase(name, p) for p in wanted)]
    if not found:
        raise CheckpointError(
            f"{repository.name} has no revision that matches {' or '.join(wanted)}; it has {some(names, 5)}. "
            f"If its checkpoints are the commits of a branch, give --revisions {COMMITS}BRANCH."
        )
    return [Revision(name, commits[name]) for name in found]


def list_branch_commits(repository: Repository, branch: str) -> tuple[list[Revision], str]:
    """The commits of a branch whose messages name a step, and a sentence about the others.

    If several name one step, the latest is read: a training that was resumed pushed it again.
    """
    where = f"{SCHEME}{repository.name}@{branch}"
    commits = list_commits(where, repository.name, branch, hub_files.RETRY)
    latest: dict[int, HubCommit] = {}
    for each in commits:
        if each.step is not None:
            latest.setdefault(each.step, each)
    if not latest:
        titles = some([repr(each.title[:60]) for each in commits], 3)
        raise CheckpointError(
            f"No commit of {where} names a step in its message, as 'Training in progress, step 500' does; "
            f"it has {len(commits)}: {titles}."
        )
    read = {each.commit for each in latest.values()}
    others = [f"{each.commit[:8]} {each.title[:60]!r}" for each in commits if each.commit not in read]
    note = (
        f"{len(others)} commits of {where} are left out, because they name no step or an older state of one"
    )
    revisions = [Revision(each.commit, each.commit, f"step{step}") for step, each in sorted(latest.items())]
    return revisions, f"{note} ({some(others, 3)})" if others else ""


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
    commit = resolve_revision(where, repository, revision.name, hub_files.RETRY)
    if not _COMMIT.fullmatch(commit):
        raise CheckpointError(f"{where} cannot be read: the hub does not say which commit it is.")
    return commit


def _open_revision(repository: Repository, revision: Revision) -> HubFolder:
    where = f"{SCHEME}{repository.name}@{revision.name}"
    commit = find_commit(repository.name, revision)
    files = list_files(where, repository.name, commit, hub_files.RETRY)
    prefix = f"{repository.folder}/" if repository.folder else ""
    return HubFolder(where, repository.name, commit, FileTree(files), prefix)
