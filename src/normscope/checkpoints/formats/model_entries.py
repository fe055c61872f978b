"""Which of a checkpoint's nested entries are the model's parameters, judged by their paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from normscope.checkpoints.base import quoted
from normscope.checkpoints.formats.torch.state_dicts import WRAPPERS, is_beside_model
from normscope.errors import CheckpointError
from normscope.words import some

EntryPath = tuple[str, ...]

_WRAPPERS = ("target", *WRAPPERS)
_SLOTS = frozenset(("exp_avg", "exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "master_weights"))
_OPTIMIZER = "optimizer state"


@dataclass(frozen=True)
class ModelEntries:
    """Path → name of each parameter, and the other entries by their first key, with the reason."""

    names: dict[EntryPath, str]
    skipped: dict[str, str]


def select_model(paths: Iterable[EntryPath]) -> ModelEntries:
    """Step into wrappers such as `model` or `params`, and skip the entries beside them."""
    inside = {path: path for path in paths}
    skipped: dict[str, str] = {}
    for _ in range(3):
        heads = {rest[0] for rest in inside.values() if len(rest) > 1}
        key = next((k for k in _WRAPPERS if k in heads), None)
        if key is None:
            break
        for path, rest in inside.items():
            if rest[0] != key:
                skipped[_head(path, rest)] = _reason(rest) or f"beside the model, which is {key!r}"
        inside = {path: rest[1:] for path, rest in inside.items() if rest[0] == key and len(rest) > 1}
    names: dict[EntryPath, str] = {}
    for path, rest in inside.items():
        if reason := _reason(rest):
            skipped[_head(path, rest)] = reason
        else:
            names[path] = ".".join(rest)
    return ModelEntries(names, skipped)


def no_parameters(where: str, skipped: Mapping[str, str]) -> CheckpointError:
    """The error for a checkpoint in which no entry is a parameter."""
    others = f", only {some(quoted(sorted(skipped)))}" if skipped else ""
    return CheckpointError(f"{where} contains no model parameters{others}.")


def _reason(rest: EntryPath) -> str | None:
    if rest[-1] in _SLOTS:
        return _OPTIMIZER
    return "optimizer, scheduler or random state" if is_beside_model(rest[0]) else None


def _head(path: EntryPath, rest: EntryPath) -> str:
    return ".".join(path[: len(path) - len(rest) + 1])
