"""Whether two checkpoints hold the same weights, in whatever format they are stored."""

from __future__ import annotations

from contextlib import ExitStack, closing

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.checkpoints.series.file_groups import FoundCheckpoint

_BLOCK = 1 << 20
_BLOCKS = 8
"""Blocks compared per tensor, spread over it: training changes a tensor everywhere or nowhere."""


def same_weights(one: FoundCheckpoint, other: FoundCheckpoint) -> bool:
    """Whether two checkpoints have the same tensors with the same values; tied copies may be missing."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(found.open())) for found in (one, other))
        if first.nbytes == second.nbytes and first.digest == second.digest:
            return True
        if not _same_tensors(first, second):
            return False
        return all(_equal(first, second, name) for name in first.tensors.keys() & second.tensors.keys())


def share_a_tensor(one: FoundCheckpoint, other: FoundCheckpoint) -> bool:
    """Whether two checkpoints have a tensor of one name; parts of one checkpoint have none."""
    with closing(one.open()) as first, closing(other.open()) as second:
        return not first.tensors.keys().isdisjoint(second.tensors.keys())


def _same_tensors(first: Checkpoint, second: Checkpoint) -> bool:
    shared = first.tensors.keys() & second.tensors.keys()
    if not shared or any(_form(first.tensors[name]) != _form(second.tensors[name]) for name in shared):
        return False
    return all(_only_tied(checkpoint, shared) for checkpoint in (first, second))


def _form(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    return tensor.shape, tensor.dtype


def _only_tied(checkpoint: Checkpoint, shared: set[str]) -> bool:
    """Whether every tensor that the other checkpoint lacks is tied to one that it has."""
    known = {checkpoint.tensors[name].storage for name in shared}
    return all(tensor.storage in known for name, tensor in checkpoint.tensors.items() if name not in shared)


def _equal(first: Checkpoint, second: Checkpoint, name: str) -> bool:
    size = first.tensors[name].nbytes
    starts = {max(0, (size - _BLOCK) * i // (_BLOCKS - 1)) for i in range(_BLOCKS)}
    for start in sorted(starts):
        stop = min(size, start + _BLOCK)
        if bytes(first.read(name, start, stop)) != bytes(second.read(name, start, stop)):
            return False
    return True
