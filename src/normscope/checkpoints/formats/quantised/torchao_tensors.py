"""torchao's tensor subclasses: their parts as tensors, and what they are as text.

transformers writes `X._weight_qdata` and `X._weight_scale` into safetensors, and into the metadata for
`X.weight` a JSON object with the class and its settings. A pickle holds the same parts inside the
subclass; its reader lists them under the same names. https://github.com/pytorch/ao
(prototype/safetensors, quantization/quantize_/workflows).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from normscope.checkpoints.formats.json_headers import parse_object
from normscope.checkpoints.formats.quantised.stored_parts import (
    Found,
    PackedWeight,
    StoredPart,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import LARGEST_UNIT
from normscope.checkpoints.formats.quantised.unpacking.scaled_rows import ScaledRows, fit_grid
from normscope.errors import CorruptCheckpoint

ENDINGS = ("_qdata",)
_LONGEST = 100_000
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_STORED: Mapping[str, tuple[str, ...]] = {
    "Float8Tensor": _FLOAT8, "Int8Tensor": ("int8",), "IntxUnpackedToInt8Tensor": ("int8",),
}  # fmt: skip
"""The classes that are read, and the dtypes of their numbers."""
_NEEDED = ("qdata", "scale", "zero_point")
_LASTS = (*_NEEDED, "act_pre_scale", "per_tensor_scale")
_OF_ACTIVATIONS = ("act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale")
_SCALES = ("float32", "bfloat16", "float16")
UNREAD = (
    "this class or setting of torchao has a layout that is not read here. Load the model with transformers "
    "and torchao, call dequantize() on its weights, and save it"
)


def find_torchao(stored: StoredTensors) -> Iterator[Found]:
    """The weights whose class is in the metadata."""
    for name in stored.tensors:
        module, dot, inside = name.removesuffix("_qdata").rpartition(".")
        weight = f"{module}{dot}{inside[1:]}"
        if name.endswith(ENDINGS) and inside.startswith("_") and weight in stored.checkpoint.metadata:
            yield _subclass(stored, weight, f"{module}{dot}{inside}_")


def _subclass(stored: StoredTensors, weight: str, prefix: str) -> Found:
    """One weight: its parts are those that begin with its name."""
    parts = tuple(prefix + last for last in (*_LASTS, *_OF_ACTIVATIONS) if prefix + last in stored.tensors)
    kind, settings = _described(stored.checkpoint.metadata[weight])
    qdata, scale, zero = (stored.part(prefix + last) for last in _NEEDED)
    others = set(parts) - {prefix + last for last in (*_NEEDED, *_OF_ACTIVATIONS)}
    if qdata is None or scale is None or others or qdata.dtype not in _STORED.get(kind, ()):
        return UnreadWeight(weight, parts, UNREAD)
    block = settings.get("block_size")
    sizes = tuple(n for n in block if type(n) is int and n > 0) if isinstance(block, list) else ()
    grid = fit_grid(qdata.shape, scale.shape, sizes) if qdata.shape else None
    if grid is None or scale.dtype not in _SCALES or qdata.shape[-1] > LARGEST_UNIT or not _fits(zero, scale):
        return UnreadWeight(weight, parts, UNREAD)
    extent = ScaledRows(qdata, scale, grid, zero=zero)
    return PackedWeight(weight, qdata.shape, parts, extent, f"torchao's {kind}")


def _described(text: str) -> tuple[str, Mapping[str, Any]]:
    """The class, and its settings; nothing of a text that is not an object."""
    try:
        content = parse_object(text[:_LONGEST].encode(), "metadata")
    except CorruptCheckpoint:
        return "", {}
    kind, settings = content.get("_type"), content.get("_data")
    return (kind if isinstance(kind, str) else ""), (settings if isinstance(settings, dict) else {})


def _fits(zero: StoredPart | None, scale: StoredPart) -> bool:
    return zero is None or (zero.dtype == "int8" and zero.tensor.numel == scale.tensor.numel)
