"""Names of config fields: bare, or with the path of the part they belong to, such as `optimization.lr`."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from normscope.errors import UsageError
from normscope.words import some

MOST_FIELDS = 24  # in a message
OTHER_NAMES = {
    "learning_rate": "lr",
    "wd": "weight_decay",
    "batch_size": "batch",
    "layers": "n_layers",
    "heads": "n_heads",
    "max_steps": "steps",
    "max_iters": "steps",
    "block_size": "length",
    "vocab": "vocabulary",
    "grad_clip": "clip",
    "language": "task",
}
"""What other tools call some fields; used only to suggest the name they have here."""
OWN_OBJECTS = {"model": "network", "data": "dataset"}
"""A part of the tree that is given an object or its name, and the field that this means."""


@cache
def field_paths(kind: type) -> dict[str, str]:
    """Map each leaf field of the tree to its path, such as lr to optimization.lr."""
    return dict(_leaves(kind, ""))


def _leaves(kind: type, above: str) -> Iterator[tuple[str, str]]:
    hints = typing.get_type_hints(kind)
    for entry in fields(kind):
        if dataclasses.is_dataclass(hints[entry.name]):
            yield from _leaves(hints[entry.name], f"{above}{entry.name}.")
        else:
            yield entry.name, above + entry.name


def plain_names(kind: type, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same changes by bare field names; a nested mapping is taken apart, and nothing is given twice."""
    found: dict[str, Any] = {}
    for path, value in _taken_apart(changes, "", typing.get_type_hints(kind)):
        name = plain_name(kind, path)
        if name in found:
            raise UsageError(f"{name} is given twice, once of them as {path}: keep one of them")
        found[name] = value
    return found


def _taken_apart(
    changes: Mapping[str, Any], above: str, parts: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    for name, value in changes.items():
        part = parts.get(name)
        if isinstance(value, Mapping):
            yield from _taken_apart(value, f"{above}{name}.", {})
        elif dataclasses.is_dataclass(part) and isinstance(value, typing.cast(type, part)):
            yield from ((f"{name}.{field}", getattr(value, field)) for field in vars(value))
        else:
            yield f"{above}{name}", value


def _instead(name: str, paths: Collection[str]) -> str:
    """The field that was probably meant; all of them, if none has a name like this."""
    close: Sequence[str] = difflib.get_close_matches(name, [*paths, *OTHER_NAMES], n=1)
    if close:
        return f": did you mean {OTHER_NAMES.get(close[0], close[0])!r}?"
    return f"; it has {some(list(paths), MOST_FIELDS)}: see the table of docs/lab.md"


def plain_name(kind: type, path: str) -> str:
    """The bare name of a field; UsageError if there is none, or if it belongs to another part."""
    paths = field_paths(kind)
    dotted, name = "." in path, path.rpartition(".")[2]
    name = name if dotted else OWN_OBJECTS.get(name, name)
    if name not in paths:
        raise UsageError(f"there is no field {path!r} in a lab config{_instead(name, paths)}")
    if dotted and path != paths[name]:
        raise UsageError(f"there is no field {path!r} in a lab config: it is {paths[name]!r}")
    return name
