"""What a scan will measure: the common parameters of a stage, and which of their rows are missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from normscope.anatomy import Place, locate_all, not_a_parameter
from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.errors import CheckpointError
from normscope.run import NO_PREVIOUS, TensorRow


@dataclass(frozen=True)
class Inventory:
    """The parameters that every checkpoint of a stage holds, and what was left out."""

    tensors: tuple[Tensor, ...]
    tied_to: Mapping[str, str]
    """Name → the earlier name with the same storage, which is counted instead."""
    places: Mapping[str, Place]
    skipped: Mapping[str, str]

    @property
    def unknown(self) -> list[str]:
        """Names that no model family knows."""
        return [name for name, place in self.places.items() if not place.known]


def take_inventory(
    checkpoints: Sequence[Checkpoint], labels: Sequence[str], skip: Collection[str]
) -> Inventory:
    """Choose what to measure: float parameters present in every checkpoint with one shape, tied ones once."""
    skipped: dict[str, str] = {}
    for checkpoint in checkpoints:
        skipped.update(checkpoint.skipped)
    names = dict.fromkeys(name for checkpoint in checkpoints for name in checkpoint.tensors)
    kept = []
    for name in names:
        reason = _reason_to_skip(name, checkpoints, labels, skip)
        if reason is None:
            kept.append(checkpoints[0].tensors[name])
        else:
            skipped[name] = reason
    if not kept:
        raise CheckpointError(_nothing_left(skipped))
    tied = _ties(checkpoints, [tensor.name for tensor in kept])
    return Inventory(tuple(kept), tied, locate_all(tensor.name for tensor in kept), skipped)


def _reason_to_skip(
    name: str, checkpoints: Sequence[Checkpoint], labels: Sequence[str], skip: Collection[str]
) -> str | None:
    found = [checkpoint.tensors.get(name) for checkpoint in checkpoints]
    tensor = next(t for t in found if t is not None)
    if any(fnmatchcase(name, pattern) for pattern in skip):
        return "left out by --skip"
    if tensor.dtype not in WIDTHS:
        return f"{tensor.dtype} is not a floating-point dtype that is measured"
    buffer = not_a_parameter(name, tensor.shape)
    if buffer is not None:
        return buffer
    for other, label in zip(found, labels, strict=True):
        if other is None:
            return f"missing in {label}" + _and_more(sum(t is None for t in found) - 1)
        if other.shape != tensor.shape:
            return f"its shape {list(tensor.shape)} becomes {list(other.shape)} in {label}"
        if other.dtype not in WIDTHS:
            return f"it becomes {other.dtype} in {label}"
    return None


def _and_more(count: int) -> str:
    return f" and {count} more" if count else ""


def _nothing_left(skipped: Mapping[str, str]) -> str:
    if not skipped:
        return "the checkpoints hold no tensors: nothing to measure"
    name, reason = next(iter(skipped.items()))
    return (
        f"no parameter is common to all checkpoints: all {len(skipped)} tensors were left out "
        f"(for example {name}: {reason})"
    )


def _ties(checkpoints: Sequence[Checkpoint], names: Sequence[str]) -> dict[str, str]:
    """Names whose storage an earlier name shares in every checkpoint."""
    first: dict[object, str] = {}
    tied = {}
    for name in names:
        key = tuple(checkpoint.tensors[name].storage for checkpoint in checkpoints)
        if key in first:
            tied[name] = first[key]
        else:
            first[key] = name
    return tied


def tensor_rows(inventory: Inventory, ids: Mapping[str, int]) -> list[TensorRow]:
    """The inventory as rows; names already in the run keep their ids."""
    given = dict(ids)
    following = max(given.values(), default=0) + 1
    rows = []
    for tensor in inventory.tensors:
        if tensor.name not in given:
            given[tensor.name] = following
            following += 1
        place, tied = inventory.places[tensor.name], inventory.tied_to.get(tensor.name)
        identity = (given[tensor.name], tensor.name, place.component, place.layer, place.role)
        rows.append(
            TensorRow(*identity, tensor.shape, tensor.dtype, tensor.numel, given[tied] if tied else None)
        )
    return rows


@dataclass(frozen=True)
class Chain:
    """The rows to make for one tensor: checkpoints to read, in order.

    `rows` are indices of checkpoints that get a row; each is compared with the
    one before it. `reads` are all that must be read for that: the rows, the
    checkpoint before each of them, and the first one.
    """

    rows: frozenset[int]
    reads: tuple[int, ...]


def missing(steps: Sequence[int], have: Collection[tuple[int, int]]) -> Chain | None:
    """What is missing of one tensor, given the (step, previous step) pairs that are there."""
    previous = [NO_PREVIOUS, *steps[:-1]]
    rows = frozenset(i for i, pair in enumerate(zip(steps, previous, strict=True)) if pair not in have)
    if not rows:
        return None
    reads = {0, *rows, *(i - 1 for i in rows if i > 0)}
    return Chain(rows, tuple(sorted(reads)))
