"""The layouts of quantised weights that are known, in the order in which they take tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.formats.quantised.bitsandbytes_4bit import ENDINGS as BITSANDBYTES
from normscope.checkpoints.formats.quantised.bitsandbytes_4bit import find_bitsandbytes
from normscope.checkpoints.formats.quantised.dequantised_checkpoint import DequantisedCheckpoint, Unpacking
from normscope.checkpoints.formats.quantised.four_bit_floats import ENDINGS as FOUR_BIT_FLOATS
from normscope.checkpoints.formats.quantised.four_bit_floats import find_four_bit_floats
from normscope.checkpoints.formats.quantised.gptq_and_awq import ENDINGS as GPTQ_AND_AWQ
from normscope.checkpoints.formats.quantised.gptq_and_awq import find_gptq_and_awq
from normscope.checkpoints.formats.quantised.one_byte_weights import find_one_byte
from normscope.checkpoints.formats.quantised.packed_rows import ENDINGS as PACKED_ROWS
from normscope.checkpoints.formats.quantised.packed_rows import find_packed_rows
from normscope.checkpoints.formats.quantised.stored_parts import (
    Found,
    PackedWeight,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.torchao_tensors import ENDINGS as TORCHAO
from normscope.checkpoints.formats.quantised.torchao_tensors import find_torchao


@dataclass(frozen=True)
class Scheme:
    """A layout: the endings of names that only it uses, and what finds its weights.

    `find` is asked only if the checkpoint has a name with one of the `endings`.
    """

    name: str
    endings: tuple[str, ...]
    find: Callable[[StoredTensors], Iterator[Found]]


SCHEMES = (
    Scheme("bitsandbytes, four bits", BITSANDBYTES, find_bitsandbytes),
    Scheme("GPTQ, AWQ", GPTQ_AND_AWQ, find_gptq_and_awq),
    Scheme("compressed-tensors, packed", PACKED_ROWS, find_packed_rows),
    Scheme("MXFP4, NVFP4", FOUR_BIT_FLOATS, find_four_bit_floats),
    Scheme("torchao", TORCHAO, find_torchao),
    Scheme("numbers of one byte with scales", ("_scale", "_scale_inv", ".scale", ".SCB"), find_one_byte),
)

FORMATS = ("safetensors", "pytorch")
"""Formats whose quantised weights are known; Keras, for one, divides by what it calls a scale."""
_ENDINGS = tuple({ending for scheme in SCHEMES for ending in scheme.endings})
_OF_ACTIVATIONS = re.compile(
    r"(?:\w+_)?(?:input|activation|output)_(?:global_)?(?:scale(?:_inv|_ub)?|zero_point|amax)"
)
_OF_CACHE = re.compile(r"(?:[qkv]|prob|kv)_(?:proj_)?(?:scale|zero_point)")
ACTIVATIONS = "a scale of activations, not a weight"


def dequantised(checkpoint: Checkpoint, read_config: Callable[[], Mapping[str, Any]]) -> Checkpoint:
    """The checkpoint with its quantised weights as float32; itself, if it has none.

    `read_config` returns the settings of quantisation beside the checkpoint; it is called only if a
    layout that needs them is found.
    """
    of_torch = checkpoint.format.startswith(FORMATS)
    if not of_torch or not any(name.endswith(_ENDINGS) for name in checkpoint.tensors):
        return checkpoint
    unpacking = find_packed(StoredTensors(checkpoint, read_config))
    return DequantisedCheckpoint(checkpoint, unpacking) if unpacking else checkpoint


def find_packed(stored: StoredTensors) -> Unpacking:
    """What all schemes find; a stored tensor belongs to the first that takes it."""
    taken: set[str] = set()
    weights: list[PackedWeight] = []
    unread: list[UnreadWeight] = []
    for scheme in SCHEMES:
        if any(name.endswith(scheme.endings) for name in stored.tensors):
            for found in scheme.find(stored):
                if taken.isdisjoint(found.parts) and _is_free(found.name, found.parts, stored):
                    taken.update(found.parts)
                    (weights if isinstance(found, PackedWeight) else unread).append(found)  # type: ignore[arg-type]
    unused = {name: why for weight in weights for name, why in weight.unused.items() if name not in taken}
    return Unpacking(weights, unread, {**unused, **_beside(stored, taken)})


def _is_free(name: str, parts: tuple[str, ...], stored: StoredTensors) -> bool:
    """Whether no other stored tensor has the name of the weight."""
    return name in parts or name not in stored.tensors


def _beside(stored: StoredTensors, taken: set[str]) -> dict[str, str]:
    """Scales of activations and of the cache of keys and values, in modules with packed weights."""
    modules = {name.rpartition(".")[0] for name in taken}
    above = {module.rpartition(".")[0] for module in modules}
    found = {}
    for name, tensor in stored.tensors.items():
        module, _, last = name.rpartition(".")
        inside = module in modules and _OF_ACTIVATIONS.fullmatch(last)
        cache = (module in modules or module in above) and tensor.numel == 1 and _OF_CACHE.fullmatch(last)
        if name not in taken and (inside or cache):
            found[name] = ACTIVATIONS
    return found
