"""Which of a checkpoint's nested entries are the model's parameters, judged by their paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from normscope.checkpoints.base import quoted
from normscope.checkpoints.formats.torch.state_dicts import COPY, WEIGHTS, WRAPPERS
from normscope.checkpoints.limits import limits
from normscope.checkpoints.slot_names import BESIDE, OPTIMIZER, is_beside_model, is_slot, may_be_optimizer
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.words import some

EntryPath = tuple[str, ...]
Inside = dict[EntryPath, EntryPath]
"""The whole path of an entry → what is left of it inside the wrappers."""

_WRAPPERS = ("target", *WRAPPERS)
_DEEPEST = 64
_ALSO_PARTS = frozenset(("model", "module", "network", "net"))
"""Wrappers whose words also name a part of a model, beside its head and other parts."""


@dataclass(frozen=True)
class ModelEntries:
    """Path → name of each parameter, and the other entries by their first key, with the reason.

    `networks` are the keys of several networks, if there are several.
    """

    names: dict[EntryPath, str]
    skipped: dict[str, str]
    networks: tuple[str, ...] = ()


def select_model(paths: Iterable[EntryPath]) -> ModelEntries:
    """Step into wrappers such as `model` or `params`, and skip the entries beside them."""
    inside: Inside = {path: path for path in paths}
    if any(len(path) > _DEEPEST or sum(map(len, path)) > limits().name for path in inside):
        raise CorruptCheckpoint(f"a name is too long (limit {limits().name:,} characters, {_DEEPEST} levels)")
    skipped: dict[str, str] = {}
    networks: tuple[str, ...] = ()
    for _ in range(3):
        heads = {rest[0] for rest in inside.values() if len(rest) > 1}
        key = next((k for k in _WRAPPERS if k in heads), None)
        if key is None or (key in _ALSO_PARTS and _is_part(key, inside)):
            break
        networks = _networks(heads, inside)
        for path, rest in inside.items():
            if rest[0] not in (key, *networks):
                skipped[_head(path, rest)] = _reason(rest) or f"beside the model, which is {key!r}"
        inside = {
            path: rest for path, rest in inside.items() if rest[0] in (key, *networks) and len(rest) > 1
        }
        if networks:
            networks = (key, *networks)
            break
        inside = {path: rest[1:] for path, rest in inside.items()}
    names: dict[EntryPath, str] = {}
    for path, rest in inside.items():
        if reason := _reason(rest, len(rest) < len(path)):
            skipped[_head(path, rest)] = reason
        else:
            names[path] = ".".join(rest)
    if len(set(names.values())) < len(names):
        times = Counter(names.values())
        twice = next(name for name, count in times.items() if count > 1)
        raise ValueError(f"two entries of the model are both called {twice[:200]!r}")
    return ModelEntries(names, skipped, networks)


def no_parameters(where: str, skipped: Mapping[str, str]) -> CheckpointError:
    """The error for a checkpoint in which no entry is a parameter."""
    others = f", only {some(quoted(sorted(skipped)))}" if skipped else ""
    return CheckpointError(f"{where} contains no model parameters{others}.")


def _networks(heads: Iterable[str], inside: Inside) -> tuple[str, ...]:
    """The keys beside the model that contain weights of another network."""
    below = _below(inside)
    return tuple(
        head
        for head in sorted(heads)
        if head not in _WRAPPERS
        and not (COPY.fullmatch(head) or is_beside_model(head) or may_be_optimizer(head))
        and _is_network(below[head])
    )


def _below(inside: Inside) -> defaultdict[str, set[EntryPath]]:
    """First key → what is left of the paths below it."""
    found: defaultdict[str, set[EntryPath]] = defaultdict(set)
    for rest in inside.values():
        if len(rest) > 1:
            found[rest[0]].add(rest[1:])
    return found


def _is_network(below: set[EntryPath], at_least: int = 1) -> bool:
    names = [".".join(rest) for rest in below]
    matrices = [name for name in names if name.rpartition(".")[2] in WEIGHTS]
    return len(matrices) >= at_least and not any(map(is_slot, names))


def _is_part(key: str, inside: Inside) -> bool:
    """Whether `key` is a part of the model: beside it are other parts, and nothing that a trainer saves."""
    others = {rest[0] for rest in inside.values()} - {key}
    if not others or any(map(_is_trainers, others)):
        return False
    below = _below(inside)
    return not all(_is_network(below[head], at_least=2) for head in others)


def _is_trainers(head: str) -> bool:
    known = head in _WRAPPERS or head == "batch_stats" or COPY.fullmatch(head) is not None
    return known or is_beside_model(head) or may_be_optimizer(head)


def _reason(rest: EntryPath, inside_model: bool = False) -> str | None:
    if is_slot(".".join(rest)):
        return OPTIMIZER
    if inside_model and len(rest) == 1:
        return None  # a tensor of the model may be called `step`
    return BESIDE if is_beside_model(rest[0]) else None


def _head(path: EntryPath, rest: EntryPath) -> str:
    return ".".join(path[: len(path) - len(rest) + 1])
