"""Other packages: parts that they add to normscope, and optional ones, imported when first needed.

Parts are found through Python entry points. A package declares them in its pyproject.toml:

    [project.entry-points."normscope.laws"]
    cube-root = "my_package:CUBE_ROOT"

`docs/extending.md` says what an entry of each group must be. Entries are looked up once per
process and imported only when their group is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from normscope.errors import MissingExtra, PluginError

GROUPS: Mapping[str, str] = {
    "formats": "a checkpoint format: a FileFormat or a FolderFormat",
    "laws": "a growth law: a Law",
    "measures": "a measure: a function of a matrix, or of a matrix and its predecessor, giving a number",
    "claims": "a paper's claim: the path of a TOML file",
}


@dataclass(frozen=True)
class Plugin:
    """One entry that an installed package adds: its group and name, the package, and the loaded object."""

    group: str
    name: str
    package: str
    value: Any


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """The plugins of one of GROUPS, sorted by name; two of one name are an error."""
    found: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=f"normscope.{group}"), key=lambda entry: entry.name):
        plugin = _load(group, entry)
        other = found.setdefault(plugin.name, plugin)
        if other is not plugin:
            raise PluginError(
                f"two packages add the {group[:-1]} {entry.name!r}: {other.package} and {plugin.package}; "
                "uninstall one of them"
            )
    return tuple(found.values())


def _load(group: str, entry: EntryPoint) -> Plugin:
    package = entry.dist.name if entry.dist else "an unknown package"
    try:
        return Plugin(group, entry.name, package, entry.load())
    except Exception as error:
        raise PluginError(
            f"the {group[:-1]} {entry.name!r} of the package {package} cannot be loaded: "
            f"{type(error).__name__}: {error}; repair or uninstall that package"
        ) from error


def require(package: str, extra: str, purpose: str) -> Any:
    """Import an optional package; if it is missing, MissingExtra names the command that installs it."""
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtra(package, extra, purpose) from None
