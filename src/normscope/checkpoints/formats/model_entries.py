"""Which of a checkpoint's nested entries are the model's parameters, told by their paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from normscope.checkpoints.formats.torch.state_dicts import WRAPPERS, is_beside_model

Path = tuple[str, ...]

_WRAPPERS = ("target", *WRAPPERS)
_SLOTS = frozenset(("exp_avg", "exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "master_weights"))
_OPTIMIZER = "optimizer state"


@dataclass(frozen=True)
class ModelEntries:
    """The parameters' paths with the names they get, and the rest by its first key."""

    names: dict[Path, str]
    skipped: dict[str, str]


def select_model(paths: Iterable[Path]) -> ModelEntries:
    """Step into wrappers such as `model` or `params`, and leave out what stands beside them."""
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
    names: dict[Path, str] = {}
    for path, rest in inside.items():
        if reason := _reason(rest):
            skipped[_head(path, rest)] = reason
        else:
            names[path] = ".".join(rest)
    return ModelEntries(names, skipped)


def _reason(rest: Path) -> str | None:
    if rest[-1] in _SLOTS:
        return _OPTIMIZER
    return "optimizer, scheduler or random state" if is_beside_model(rest[0]) else None


def _head(path: Path, rest: Path) -> str:
    return ".".join(path[: len(path) - len(rest) + 1])
