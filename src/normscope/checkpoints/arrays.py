"""Tensors of a checkpoint, whole as torch tensors, or some of their elements as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normscope.checkpoints.base import ITEM_SIZES, WIDTHS, Buffer, Checkpoint, quoted
from normscope.errors import CheckpointError
from normscope.words import some

if TYPE_CHECKING:
    import torch

PIECE = 1 << 26
"""Bytes read at a time, unless the checkpoint unpacks larger units at once."""


def read_tensor(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    """Copy one tensor out of a checkpoint: stored dtype and shape, on the CPU, in new memory.

    Tied tensors are copied once per name. A dtype that torch cannot represent is a CheckpointError.
    """
    tensor = checkpoint.tensors.get(name)
    if tensor is None:
        present = some(quoted(checkpoint.tensors))
        raise CheckpointError(f"The checkpoint has no tensor {name!r}; it has {present}.")
    if tensor.dtype not in ITEM_SIZES:
        raise CheckpointError(f"The tensor {name!r} has the dtype {tensor.dtype}, which torch cannot load.")
    raw = bytearray(tensor.numel * ITEM_SIZES[tensor.dtype])
    unit = checkpoint.read_granularity(name)
    step = max(1, PIECE // unit) * unit
    for start in range(0, len(raw), step):
        stop = min(start + step, len(raw))
        raw[start:stop] = checkpoint.read(name, start, stop)
        checkpoint.drop(name, start, stop)
    return _view(raw, tensor.dtype).reshape(tensor.shape)


def as_tensor(data: Buffer, dtype: str) -> torch.Tensor:
    """Copy raw little-endian elements into a flat torch tensor: torch requires writable memory."""
    return _view(bytearray(data), dtype)


def _view(data: bytearray, dtype: str) -> torch.Tensor:
    import torch

    kind = getattr(torch, dtype)
    return torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)


def read_elements(checkpoint: Checkpoint, name: str, cut: tuple[int, int], dtype: str) -> Buffer:
    """Read the elements cut[0] … cut[1]−1 of a tensor; `dtype` is its own or float64."""
    stored = checkpoint.tensors[name].dtype
    width = WIDTHS[stored]
    raw = checkpoint.read(name, cut[0] * width, cut[1] * width)
    return raw if dtype == stored else _as_float64(raw, stored)


def _as_float64(raw: Buffer, dtype: str) -> Buffer:
    return as_tensor(raw, dtype).double().numpy().tobytes()
