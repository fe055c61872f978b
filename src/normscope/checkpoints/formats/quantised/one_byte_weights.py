"""float8 and int8 weights beside scales of blocks, rows or the whole tensor.

The value is the stored number, less a zero point if there is one, times its scale. Written so by DeepSeek and
Qwen (`weight_scale_inv`, 128 × 128 blocks; despite its name it is a factor), FBGEMM and compressed-tensors
(`weight_scale`), Llama 4's experts (`gate_up_proj_scale`), MXFP8 (E8M0 scales of 32 values), NVIDIA's
ModelOpt, and bitsandbytes' LLM.int8 (`SCB`, the largest magnitude of each row, which stands for 127).
"""

from __future__ import annotations

from collections.abc import Iterator

from normscope.checkpoints.base import Tensor
from normscope.checkpoints.formats.quantised.stored_parts import (
    Found,
    PackedWeight,
    StoredPart,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import LARGEST_UNIT
from normscope.checkpoints.formats.quantised.unpacking.scaled_rows import ScaledRows, ScaleGrid, fit_grid

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_FACTORS = ("float32", "bfloat16", "float16", "float8_e8m0fnu")
"""Dtypes of scales that are factors; uint8 is one only in MXFP8, whose blocks are 32 values of a row."""
_MX = 32
_BLOCK = 128
_ROW_MAJOR = b"\0"
UNCLEAR = (
    "its scale does not fit its shape, so its values are not known. Scan the checkpoint before quantisation, "
    "or convert it with the tool that wrote it"
)
TILES = (
    "its rows are in the order of a GPU's tiles (weight_format). Load it with transformers and bitsandbytes, "
    "call model.dequantize(), and save it"
)


def find_one_byte(stored: StoredTensors) -> Iterator[Found]:
    """The float8 and int8 weights that have a scale beside them; those without one are what they are."""
    for name, tensor in stored.tensors.items():
        if tensor.dtype in FLOAT8 or tensor.dtype == "int8":
            scales = _scales_of(stored, tensor)
            weight = StoredPart(stored.checkpoint, tensor)
            if len(scales) == 1:
                yield _one_byte(stored, weight, scales[0])
            elif scales:
                yield UnreadWeight(name, (name, *(scale.name for scale in scales)), UNCLEAR)


def _scales_of(stored: StoredTensors, tensor: Tensor) -> list[StoredPart]:
    """The tensors beside a weight that are named as its scale."""
    stem, dot, last = tensor.name.rpartition(".")
    names = [f"{tensor.name}_scale"]
    if last == "weight" and tensor.dtype == "int8":
        names.append(f"{stem}{dot}SCB")
    elif tensor.dtype in FLOAT8:
        names.append(f"{tensor.name}_scale_inv")
        if last == "weight":
            names.append(f"{stem}{dot}scale")  # DeepSeek's own files
    return [part for name in names if (part := stored.part(name)) is not None]


def _one_byte(stored: StoredTensors, weight: StoredPart, scale: StoredPart) -> Found:
    name = weight.name
    zero, parts = None, [name, scale.name]
    if weight.dtype == "int8" and (zero := stored.part(f"{name}_zero_point")) is not None:
        parts.append(zero.name)
    order = stored.part(f"{name.removesuffix('weight')}weight_format") if _is_llm_int8(scale) else None
    if order is not None:
        parts.append(order.name)
        if order.small()[:1] != _ROW_MAJOR:
            return UnreadWeight(name, tuple(parts), TILES)
    grid = _grid(stored, weight, scale)
    # An index of groups says that rows are not in their order; packed int8 weights do not have one.
    if grid is None or f"{name}_g_idx" in stored.tensors or not _fits(zero, scale):
        return UnreadWeight(name, tuple(parts), UNCLEAR)
    factor = 1 / 127 if _is_llm_int8(scale) else 1.0
    extent = ScaledRows(weight, scale, grid, factor, zero)
    return PackedWeight(name, weight.shape, tuple(parts), extent, _kind(weight, scale, grid))


def _is_llm_int8(scale: StoredPart) -> bool:
    return scale.name.endswith("SCB")


def _fits(zero: StoredPart | None, scale: StoredPart) -> bool:
    return zero is None or (zero.shape == scale.shape and zero.dtype == "int8")


def _grid(stored: StoredTensors, weight: StoredPart, scale: StoredPart) -> ScaleGrid | None:
    """How the scale covers the weight, if its dtype and shape are of a layout that is documented."""
    if not weight.shape or weight.shape[-1] > LARGEST_UNIT:
        return None
    asked = stored.config.get("weight_block_size")
    sizes = tuple(n for n in asked if type(n) is int and n > 0) if isinstance(asked, list) else ()
    grid = fit_grid(weight.shape, scale.shape, sizes)
    if grid is None:
        return None
    if scale.dtype == "uint8":
        return grid if weight.dtype in FLOAT8 and grid.blocks[-1] == _MX else None
    if scale.name.endswith(".scale") and grid.blocks[-2:] != (_BLOCK, _BLOCK):
        return None
    known = scale.dtype in _FACTORS
    return grid if known and (not _is_llm_int8(scale) or scale.shape == weight.shape[:1]) else None


def _kind(weight: StoredPart, scale: StoredPart, grid: ScaleGrid) -> str:
    """What the answer calls the layout."""
    if _is_llm_int8(scale):
        return "int8 (bitsandbytes LLM.int8)"
    if grid.shape == (1,) * len(grid.shape):
        return f"{weight.dtype} with one scale"
    if grid.shape[-1] == 1:
        return f"{weight.dtype} with a scale per row"
    return f"{weight.dtype} with a scale per {' × '.join(map(str, grid.blocks[-2:]))} block"
