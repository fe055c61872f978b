"""The claims and experiments that there are: ours, and those that other packages add."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

from normscope.errors import PluginError, UsageError
from normscope.plugins import plugins
from normscope.replication.claim import Claim, parse_claim
from normscope.replication.experiment import Experiment, parse_experiment
from normscope.words import joined


class HasId(Protocol):
    """What a claim and an experiment have in common."""

    @property
    def id(self) -> str:
        """The name by which it is asked for."""


EntryT = TypeVar("EntryT", bound=HasId)


@cache
def known_claims() -> Mapping[str, Claim]:
    """Return every claim by id, in the order of their numbers; a plugin's claims come after ours."""
    ours = _read("claims", parse_claim)
    others = [parse_claim(_without_experiments(path), str(path)) for path in _plugin_paths()]
    return _by_id(sorted(ours, key=lambda claim: claim.order) + others)


@cache
def known_experiments() -> Mapping[str, Experiment]:
    """Return every experiment by id; a plugin's file may hold [[experiments]] beside its claim."""
    ours = _read("experiments", parse_experiment)
    others = [
        parse_experiment(entry, str(path))
        for path in _plugin_paths()
        for entry in _toml(path).get("experiments", [])
    ]
    return _by_id([*ours, *others])


def chosen_claims(ids: Sequence[str]) -> list[Claim]:
    """Return the claims of these ids, or all; an unknown id suggests the nearest."""
    known = known_claims()
    for name in ids:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {joined(known)}"
            raise UsageError(f"there is no claim {name!r}: {hint}")
    return [claim for claim in known.values() if not ids or claim.id in ids]


def _read(folder: str, parse: Callable[[Mapping[str, Any], str], EntryT]) -> list[EntryT]:
    place = files("normscope.replication").joinpath(folder)
    entries = sorted(
        (entry for entry in place.iterdir() if entry.name.endswith(".toml")), key=lambda e: e.name
    )
    return [parse(tomllib.loads(entry.read_text("utf-8")), f"{folder}/{entry.name}") for entry in entries]


def _plugin_paths() -> Iterable[Path]:
    for plugin in plugins("claims"):
        path = Path(str(plugin.value))
        if not path.is_file():
            raise PluginError(
                f"the claim {plugin.name!r} of the package {plugin.package} must be the path of a TOML file; "
                f"got {plugin.value!r}; repair or uninstall that package"
            )
        yield path


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PluginError(f"{path} cannot be read as TOML: {error}") from None


def _without_experiments(path: Path) -> dict[str, Any]:
    return {name: value for name, value in _toml(path).items() if name != "experiments"}


def _by_id(entries: Iterable[EntryT]) -> dict[str, EntryT]:
    found: dict[str, EntryT] = {}
    for entry in entries:
        if entry.id in found:
            raise UsageError(f"two files define {entry.id!r}: rename one of them")
        found[entry.id] = entry
    return found
