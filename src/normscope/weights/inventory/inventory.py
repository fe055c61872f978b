"""The parameters that all checkpoints of a stage have, and the tensors that are left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from normscope.anatomy import locate, not_a_parameter
from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.errors import CheckpointError
from normscope.words import some


@dataclass(frozen=True)
class Inventory:
    """The parameters that every checkpoint of a stage has, and the tensors that are left out."""

    tensors: tuple[Tensor, ...]
    tied_to: Mapping[str, str]
    """Name → the earlier name with the same storage, which is counted instead."""
    skipped: Mapping[str, str]
    """Name → why it is left out."""

    @property
    def unknown(self) -> list[str]:
        """Names that belong to no known model family."""
        return [tensor.name for tensor in self.tensors if not locate(tensor.name).known]


def take_inventory(
    checkpoints: Sequence[Checkpoint], labels: Sequence[str], skip: Collection[str]
) -> Inventory:
    """Choose what to measure: floating-point parameters that every checkpoint has, with the same shape."""
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
    return Inventory(tuple(kept), _ties(checkpoints, [tensor.name for tensor in kept]), skipped)


def _reason_to_skip(
    name: str, checkpoints: Sequence[Checkpoint], labels: Sequence[str], skip: Collection[str]
) -> str | None:
    found = [checkpoint.tensors.get(name) for checkpoint in checkpoints]
    tensor = next(t for t in found if t is not None)
    if any(fnmatchcase(name, pattern) for pattern in skip):
        return "left out by --skip"
    if tensor.dtype not in WIDTHS:
        return f"{tensor.dtype} is not one of the floating-point dtypes that are measured"
    kind_of_buffer = not_a_parameter(name, tensor.shape)
    if kind_of_buffer is not None:
        return kind_of_buffer
    absent = [label for other, label in zip(found, labels, strict=True) if other is None]
    for other, label in zip(found, labels, strict=True):
        if other is None:
            return f"missing in {some(absent, 1)}"
        if other.shape != tensor.shape:
            return f"its shape {list(tensor.shape)} becomes {list(other.shape)} in {label}"
        if other.dtype not in WIDTHS:
            return f"it becomes {other.dtype} in {label}"
    return None


def _nothing_left(skipped: Mapping[str, str]) -> str:
    if not skipped:
        return "the checkpoints contain no tensors: there is nothing to measure"
    name, reason = next(iter(skipped.items()))
    return (
        f"no parameter is common to all checkpoints: all {len(skipped)} tensors were left out "
        f"(for example {name}: {reason})"
    )


def _ties(checkpoints: Sequence[Checkpoint], names: Sequence[str]) -> dict[str, str]:
    """Names that share their storage with an earlier name in every checkpoint, and that name."""
    first: dict[object, str] = {}
    tied = {}
    for name in names:
        key = tuple(checkpoint.tensors[name].storage for checkpoint in checkpoints)
        if key in first:
            tied[name] = first[key]
        else:
            first[key] = name
    return tied
