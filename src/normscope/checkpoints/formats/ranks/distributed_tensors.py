"""DTensor and ShardedTensor as pickles describe them: which part of the whole tensor a rank holds.

A DTensor says how each axis of the mesh of ranks divides it, and where this rank is in the mesh; a
ShardedTensor says the offsets of its parts. Source: torch/distributed/tensor/_api.py and _dtensor_spec.py,
torch/distributed/device_mesh.py, torch/distributed/_shard/sharded_tensor/api.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor, read_size

_Numbers = tuple[int, ...]


@dataclass(frozen=True)
class LocalPart:
    """A rectangular part of a tensor of `shape`, as one rank holds it."""

    shape: _Numbers
    offsets: _Numbers
    record: TensorRecord


def local_parts(value: Any, rank: int, ranks: int) -> list[LocalPart] | None:
    """What a rank holds of a distributed tensor; None if the value is not one.

    ValueError, with what was found, if the parts cannot be told.
    """
    args = value.args if isinstance(value, CallRecord) else None
    if not isinstance(args, tuple) or len(args) < 4 or not isinstance(args[1], Global):
        return None
    if args[1].name == "DTensor" and args[1].module.startswith("torch.distributed"):
        return [_of_dtensor(_attributes(args[3]), read_size(args[2][2]), rank, ranks)]
    if args[1].name == "ShardedTensor" and args[1].module.startswith("torch.distributed"):
        return _of_sharded_tensor(args[3], read_size(args[2][2]))
    return None


def _of_dtensor(state: Mapping[str, Any], shape: _Numbers, rank: int, ranks: int) -> LocalPart:
    record = parse_tensor(state.get("_local_tensor"))
    spec = _attributes(_state(state.get("_spec")))
    placements = spec.get("placements")
    if not isinstance(record, TensorRecord) or not isinstance(placements, tuple):
        raise ValueError("a DTensor without its local tensor or placements")
    sizes, place = _mesh(_attributes(_state(spec.get("mesh"))), rank, ranks)
    if len(placements) != len(sizes):
        raise ValueError("a DTensor whose placements do not fit its mesh")
    offsets, own = [0] * len(shape), list(shape)
    for placement, count, at in zip(placements, sizes, place, strict=True):
        axis = _split_axis(placement, len(shape))
        if axis is not None:  # as torch.chunk divides it: the last parts may be shorter, or empty
            step = -(-own[axis] // count)
            first = min(own[axis], at * step)
            offsets[axis] += first
            own[axis] = min(step, own[axis] - first)
    if tuple(own) != record.shape and math.prod(own) + record.numel > 0:
        raise ValueError(f"a part of shape {list(record.shape)}, but {own} was expected")
    return LocalPart(shape, tuple(offsets), record)


def _split_axis(placement: Any, axes: int) -> int | None:
    """The axis that a placement divides; None for a copy."""
    function = placement.function if isinstance(placement, CallRecord) else None
    kind = function.name if isinstance(function, Global) else "?"
    if kind == "Replicate":
        return None
    axis = _attributes(_state(placement)).get("dim")
    if kind != "Shard" or type(axis) is not int or not -axes <= axis < axes:
        raise ValueError(f"the placement {kind[:60]}")
    return axis % axes


def _mesh(state: Mapping[str, Any], rank: int, ranks: int) -> tuple[_Numbers, _Numbers]:
    """The lengths of the mesh of ranks, and where this rank is in it."""
    sizes = _mesh_sizes(state) or (ranks,)
    place = state.get("_coordinate_on_dim")
    if isinstance(place, list | tuple) and len(place) == len(sizes):
        found = tuple(place)
    elif math.prod(sizes) == ranks:
        found, left = (), rank
        for size in reversed(sizes):
            found, left = (left % size, *found), left // size
    else:
        raise ValueError("a mesh of other ranks than those of the files")
    if not all(type(at) is int and 0 <= at < size for at, size in zip(found, sizes, strict=True)):
        raise ValueError("a place outside of its mesh")
    return sizes, found


def _mesh_sizes(state: Mapping[str, Any]) -> _Numbers:
    """The lengths of a mesh, which versions of torch describe as a tensor of ranks or as a layout."""
    for key in ("mesh", "_mesh"):
        stored = parse_tensor(state.get(key))
        if isinstance(stored, TensorRecord):
            return _positive(stored.shape)
    layout = _attributes(_state(state.get("_layout")))
    axes = layout.get("axes")
    if isinstance(axes, tuple):
        return _positive(tuple(math.prod(_flat(_attributes(_state(axis)).get("shape"))) for axis in axes))
    shape = layout.get("shape", layout.get("_shape"))
    listed = shape if isinstance(shape, tuple) else (shape,)
    return _positive(tuple(math.prod(_flat(size)) for size in listed)) if shape is not None else ()


def _flat(value: Any) -> list[int]:
    listed = value if isinstance(value, tuple | list) else [value]
    if not all(type(size) is int and 0 < size <= 1 << 20 for size in listed) or len(listed) > 8:
        raise ValueError("a mesh of unknown form")
    return list(listed)


def _positive(sizes: _Numbers) -> _Numbers:
    if not all(0 < size <= 1 << 20 for size in sizes) or len(sizes) > 8:
        raise ValueError("a mesh of unknown form")
    return sizes


def _of_sharded_tensor(state: Any, shape: _Numbers) -> list[LocalPart]:
    shards = state[0] if isinstance(state, tuple) and state else None
    if not isinstance(shards, list):
        raise ValueError("a ShardedTensor without its shards")
    found = []
    for shard in shards:
        held = _attributes(_state(shard))
        record, metadata = parse_tensor(held.get("tensor")), _attributes(_state(held.get("metadata")))
        offsets = read_size(metadata.get("shard_offsets"))
        if not isinstance(record, TensorRecord) or len(offsets) != len(shape):
            raise ValueError("a shard without its tensor or offsets")
        found.append(LocalPart(shape, offsets, record))
    return found


def _state(value: Any) -> Any:
    return value.state if isinstance(value, CallRecord) else None


def _attributes(state: Any) -> dict[Any, Any]:
    """The attributes of an object: a dictionary, or the second of two, after those that have none."""
    inner = state[1] if isinstance(state, tuple) and len(state) == 2 else state
    return inner if isinstance(inner, dict) else {}
