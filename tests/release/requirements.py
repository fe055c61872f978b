"""Which packages the declared dependencies lead to, by the metadata of what is installed."""

import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
_PINNED_FOR = {
    "python_version": "3.11",
    "python_full_version": "3.11.7",
}  # constraints.txt is made for this one


def declared(extras: Iterable[str]) -> list[Requirement]:
    """The core requirements in pyproject.toml and those of the extras; normscope[a,b] is followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = list(project["dependencies"])
    waiting, seen = list(extras), set()
    while waiting:
        extra = waiting.pop()
        if extra not in seen:
            seen.add(extra)
            here = [Requirement(line) for line in project["optional-dependencies"][extra]]
            waiting.extend(each for found in here if found.name == "normscope" for each in found.extras)
            lines.extend(str(found) for found in here if found.name != "normscope")
    return [Requirement(line) for line in lines]


def reachable(requirements: list[Requirement]) -> set[str]:
    """The canonical names of all packages that these requirements pull in."""
    waiting, seen = list(requirements), set()
    names = set()
    while waiting:
        found = waiting.pop()
        key = (canonicalize_name(found.name), frozenset(found.extras))
        if key not in seen:
            seen.add(key)
            names.add(key[0])
            waiting.extend(_requirements_of(found))
    return names


def _requirements_of(wanted: Requirement) -> list[Requirement]:
    try:
        lines = metadata.requires(wanted.name) or []
    except metadata.PackageNotFoundError:  # for another Python or platform than this one
        return []
    return [found for found in map(Requirement, lines) if _applies(found, wanted.extras)]


def _applies(found: Requirement, extras: Iterable[str]) -> bool:
    marker = found.marker
    return marker is None or any(marker.evaluate(_PINNED_FOR | {"extra": extra}) for extra in ("", *extras))
