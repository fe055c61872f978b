"""A tree of Flax as a checkpoint's table: which leaves are the model, which are not and why, and the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from normscope.checkpoints.base import Tensor
from normscope.checkpoints.formats.flax.nnx_states import COLLECTIONS, NOTE, untrained, without_value_leaves
from normscope.checkpoints.formats.model_entries import select_model
from normscope.checkpoints.slot_names import STEP_KEYS

EntryPath = tuple[str, ...]


@dataclass(frozen=True)
class FlaxModel:
    """Path → name of each parameter of a tree; the skipped entries with their reasons; networks, notes."""

    names: Mapping[EntryPath, str]
    skipped: Mapping[str, str]
    networks: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def without_untrained(self, tensors: Mapping[str, Tensor]) -> FlaxModel:
        """The model without the tensors that NNX's names say are not trained."""
        found = untrained(tensors)
        if not found:
            return self
        names = {path: name for path, name in self.names.items() if name not in found}
        return FlaxModel(names, {**self.skipped, **found}, self.networks, (*self.notes, NOTE))


def find_flax_model(paths: Iterable[EntryPath]) -> FlaxModel:
    """The parameters among the leaves of a tree, with the names that they have in the model."""
    short = without_value_leaves(paths)
    inside = {_without_optimizer(path): whole for whole, path in short.items()}
    if len(inside) < len(short):
        raise ValueError("the model is there twice: in the optimizer, and beside it")
    found = select_model(inside)
    skipped = {name: _reason(name, reason) for name, reason in found.skipped.items()}
    return FlaxModel({inside[path]: name for path, name in found.names.items()}, skipped, found.networks)


def step_paths(paths: Iterable[EntryPath]) -> list[EntryPath]:
    """The paths at which a training step may be stored: near the root, or in the optimizer of old Flax."""
    short = without_value_leaves(paths)
    near = [whole for whole, path in short.items() if path[-1] in STEP_KEYS and len(path) <= _depth(path)]
    return sorted(near, key=lambda path: (len(path), path))


def _depth(path: EntryPath) -> int:
    return 3 if path[:2] == ("optimizer", "state") else 2


def _without_optimizer(path: EntryPath) -> EntryPath:
    """T5X and old Flax keep the model in the optimizer, as its target."""
    return path[1:] if path[:2] == ("optimizer", "target") and len(path) > 2 else path


def _reason(name: str, reason: str) -> str:
    return COLLECTIONS.get(name.split(".")[-1], reason)
