"""4-bit floats with scales of 16 or 32 values: MXFP4 and NVFP4, as gpt-oss, DeepSeek, compressed-tensors and
ModelOpt write them.

Two E2M1 values are in a byte, the first in its lower half. MXFP4 has E8M0 scales of 32 values. NVFP4 has
float8 scales of 16 values and one number for the tensor: a divisor in compressed-tensors
(`weight_global_scale`), a factor in ModelOpt (`weight_scale_2`). gpt-oss' experts (`X_blocks`, `X_scales`)
are stored with rows and columns exchanged. https://github.com/huggingface/transformers
(integrations/mxfp4.py), https://github.com/vllm-project/compressed-tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from normscope.checkpoints.formats.quantised.stored_parts import (
    Floats,
    Found,
    PackedWeight,
    StoredPart,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import LARGEST_UNIT
from normscope.checkpoints.formats.quantised.unpacking.nibble_blocks import (
    E2M1,
    BlockScales,
    NibbleBlocks,
    ScaledScales,
)
from normscope.checkpoints.formats.quantised.unpacking.packed_bits import pair_table
from normscope.checkpoints.formats.quantised.unpacking.transposed_slabs import TransposedSlabs

ENDINGS = ("_blocks", ".blocks", ".weight_packed", ".weight_scale_2", ".weight_scale_inv", ".scale")
_MX, _NV, _BYTES = 32, 16, 16
_POWERS = ("uint8", "float8_e8m0fnu")
UNCLEAR = (
    "its scales do not have the shape of MXFP4 or NVFP4. Load it with the tool that wrote it, and save the "
    "dequantised model"
)
_TABLE = pair_table(np.array(E2M1, np.float32), high_first=False)


@dataclass(frozen=True)
class TransposedMx(TransposedSlabs):
    """Experts of gpt-oss: blocks (experts, rows, groups, 16 bytes) of weights (experts, columns, rows)."""

    blocks: StoredPart
    scales: StoredPart
    width: int = field(default=_MX)

    @cached_property
    def matrices(self) -> int:  # type: ignore[override]
        """Experts."""
        return self.blocks.shape[0]

    @cached_property
    def length(self) -> int:  # type: ignore[override]
        """Stored rows."""
        return self.blocks.shape[1]

    @cached_property
    def groups(self) -> int:  # type: ignore[override]
        """Groups of 32 columns."""
        return self.blocks.shape[2]

    def strip(self, matrix: int, groups: slice, rows: slice) -> Floats:
        """Look up the pairs of some rows, and scale each group."""
        low, high = (matrix * self.length + row for row in (rows.start, rows.stop))
        row = self.groups * _BYTES
        packed = self.blocks.bytes_of(low * row, high * row).reshape(high - low, self.groups, _BYTES)[
            :, groups
        ]
        values = _TABLE[packed].view(np.float32)
        scales = self.scales.floats(low * self.groups, high * self.groups).reshape(high - low, -1)[:, groups]
        return (values * scales[..., None]).reshape(high - low, -1)


def find_four_bit_floats(stored: StoredTensors) -> Iterator[Found]:
    """The weights of every layout of 4-bit floats."""
    for name in stored.tensors:
        if name.endswith(("_blocks", ".blocks")):
            yield from _blocks(stored, name)
        elif name.endswith(".weight_packed"):
            yield from _compressed(stored, name)
        elif name.endswith(".weight_scale_2"):
            yield from _model_optimizer(stored, name)
        elif name.endswith((".weight_scale_inv", ".scale")):
            yield from _signed(stored, name)


def _blocks(stored: StoredTensors, name: str) -> Iterator[Found]:
    """gpt-oss: `X_blocks` beside `X_scales`; OpenAI's files have `X.blocks`, in the order of the model."""
    stem, mark = name[: -len("_blocks")], name[-len("_blocks")]
    blocks, scales = stored.part(name), stored.part(f"{stem}{mark}scales")
    if blocks is None or scales is None or blocks.dtype != "uint8":
        return
    parts = (name, scales.name)
    fits = len(blocks.shape) > 1 and blocks.shape[:-1] == scales.shape and blocks.shape[-1] == _BYTES
    if not fits or scales.dtype not in _POWERS or 0 in blocks.shape:
        yield UnreadWeight(stem, parts, UNCLEAR)
        return
    shape = (*blocks.shape[:-2], blocks.shape[-2] * _MX)
    if mark == "." or len(blocks.shape) != 4:
        extent = NibbleBlocks(blocks, scales, _MX, math.prod(shape))
        yield PackedWeight(stem, shape, parts, extent, "MXFP4")
    elif blocks.shape[1] * _MX <= LARGEST_UNIT:
        turned = (shape[0], shape[2], shape[1])
        yield PackedWeight(stem, turned, parts, TransposedMx(blocks, scales), "MXFP4")


def _compressed(stored: StoredTensors, name: str) -> Iterator[Found]:
    """compressed-tensors: bytes in `weight_packed`, and for NVFP4 a divisor of all scales."""
    stem = name.removesuffix("_packed")
    packed, scale, whole = (stored.part(part) for part in (name, f"{stem}_scale", f"{stem}_global_scale"))
    if packed is not None and packed.dtype == "uint8" and scale is not None:
        yield _flat(stem, packed, scale, whole, divides=True)


def _model_optimizer(stored: StoredTensors, name: str) -> Iterator[Found]:
    """NVIDIA's ModelOpt: packed bytes under the name of the weight, with two scales."""
    stem = name.removesuffix("_scale_2")
    packed, scale, whole = (stored.part(part) for part in (stem, f"{stem}_scale", name))
    if packed is not None and packed.dtype == "uint8" and scale is not None and whole is not None:
        yield _flat(stem, packed, scale, whole, divides=False)


def _signed(stored: StoredTensors, name: str) -> Iterator[Found]:
    """DeepSeek: packed bytes that are called int8, under the name of the weight, with E8M0 scales."""
    stem = name.removesuffix("_scale_inv") if name.endswith("_inv") else f"{name.removesuffix('scale')}weight"
    packed, scale = stored.part(stem), stored.part(name)
    if packed is not None and packed.dtype == "int8" and scale is not None:
        yield _flat(stem, packed, scale, None, divides=False)


def _flat(stem: str, packed: StoredPart, scale: StoredPart, whole: StoredPart | None, divides: bool) -> Found:
    """Packed rows in the order of the model."""
    parts = tuple(part.name for part in (packed, scale, whole) if part is not None)
    group, dtypes = (_MX, _POWERS) if whole is None else (_NV, ("float8_e4m3fn",))
    shape = (*packed.shape[:-1], 2 * packed.shape[-1]) if packed.shape else ()
    expected = (*shape[:-1], shape[-1] // group) if shape else ()
    single = whole is None or (whole.tensor.numel == 1 and whole.dtype == "float32")
    if not shape or 0 in shape or shape[-1] % group or scale.shape != expected or not single:
        return UnreadWeight(stem, parts, UNCLEAR)
    if scale.dtype not in dtypes:
        return UnreadWeight(stem, parts, UNCLEAR)
    scales: BlockScales = scale if whole is None else ScaledScales(scale, whole, divides)
    extent = NibbleBlocks(packed, scales, group, math.prod(shape))
    return PackedWeight(stem, shape, parts, extent, "MXFP4" if whole is None else "NVFP4")
