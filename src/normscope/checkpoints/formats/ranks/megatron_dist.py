"""Megatron-Core, `--ckpt-format torch_dist`: DCP folders with the layers of a stack in one tensor.

`decoder.layers.mlp.linear_fc1.weight` has the layers as its first axis. It is divided into the tensors of the
layers, under the names that the model itself gives them. `common.pt` holds the iteration and the arguments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, Folder, Tensor
from normscope.checkpoints.extents import ByteRange
from normscope.checkpoints.formats.dcp import is_dcp, open_dcp
from normscope.checkpoints.formats.ranks.rank_state import stored_iteration
from normscope.checkpoints.formats.tiles import Tile
from normscope.checkpoints.limits import limits
from normscope.errors import CorruptCheckpoint

_COMMON = "common.pt"
_STACK = re.compile(r"((?:.*\.)?layers)\.((?![0-9]+\.).+)")


def is_megatron_dist(folder: Folder) -> bool:
    """Whether Megatron-Core saved the folder with torch.distributed.checkpoint."""
    names = folder.names()
    return _COMMON in names and "metadata.json" in names and is_dcp(folder)


def open_megatron_dist(folder: Folder) -> Checkpoint:
    """Open the model, with the layers of each stack as tensors of their own."""
    checkpoint = open_dcp(folder, _layers)
    if checkpoint.step is None:
        checkpoint.step = stored_iteration(folder.file(_COMMON))
    return checkpoint


def _layers(tensor: Tensor, tiles: list[Tile]) -> Iterable[tuple[Tensor, list[Tile]]]:
    found = _STACK.fullmatch(tensor.name)
    if found is None or len(tensor.shape) < 2:
        return [(tensor, tiles)]
    if tensor.shape[0] * max(1, len(tiles)) > limits().parts:
        raise CorruptCheckpoint(f"the tensor {tensor.name[:200]!r} has too many layers: {tensor.shape[0]:,}")
    width = ITEM_SIZES[tensor.dtype]
    return [
        (
            Tensor(f"{found[1]}.{i}.{found[2]}", tensor.shape[1:], tensor.dtype, (tensor.storage, i)),
            [
                _of_layer(tile, i, width)
                for tile in tiles
                if tile.offsets[0] <= i < tile.offsets[0] + tile.sizes[0]
            ],
        )
        for i in range(tensor.shape[0])
    ]


def _of_layer(tile: Tile, layer: int, width: int) -> Tile:
    size = math.prod(tile.sizes[1:]) * width
    return Tile(tile.offsets[1:], tile.sizes[1:], ByteRange(tile.extent, (layer - tile.offsets[0]) * size))
