"""Quantised weights of layouts that no reader knows: they are refused, not measured.

The norm of small numbers, or of the scales beside them, says nothing about the network. Known layouts are
restored when a checkpoint is opened (`checkpoints/formats/quantised`): none of their parts is seen here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.errors import CheckpointError
from normscope.words import some

PACKED = re.compile(r"float8.*|float4.*|u?int8|u?int4|int32")
SCALE = re.compile(
    r"(?:[._](?:weight_)?scales?(?:_inv|_2)?|[._](?:absmax|quant_map|nested_absmax|SCB|qzeros)"
    r"|\.quant_state\..*|[._]weight_(?:absmax|zero_point))$"
)
LEAST_SHARE = 0.01  # of all elements: less does not change the norm of the network


def refuse_quantised(checkpoint: Checkpoint, label: str, ignored: Callable[[str], bool]) -> None:
    """Raise CheckpointError if weights are stored as small numbers that need scales to mean anything."""
    tensors = [tensor for name, tensor in checkpoint.tensors.items() if not ignored(name)]
    scaled = {SCALE.sub("", t.name) for t in tensors if SCALE.search(t.name)}
    packed = [t for t in tensors if _is_packed(t, scaled)]
    total = sum(t.numel for t in tensors)
    if packed and sum(t.numel for t in packed) >= LEAST_SHARE * total:
        kinds = dict.fromkeys(t.dtype for t in packed)
        raise CheckpointError(
            f"{label} contains quantised weights ({some([t.name for t in packed], 1)}; {', '.join(kinds)}): "
            "the stored numbers are not the weights, and their layout is not known. Scan the "
            "checkpoint before quantisation, or one that was converted back to bfloat16 or float32."
        )


def _is_packed(tensor: Tensor, scaled: set[str]) -> bool:
    if SCALE.search(tensor.name):
        return False
    stem = re.sub(r"[._](?:weight|qweight|weight_packed|blocks)$", "", tensor.name)
    return bool(PACKED.fullmatch(tensor.dtype)) and (tensor.name in scaled or stem in scaled)
