"""bitsandbytes in four bits: nf4 and fp4, with or without double quantisation.

`X.weight` has two values in a byte, the first in its upper half; `X.weight.quant_map` the levels,
`X.weight.absmax` the scale of each block, `X.weight.quant_state.bitsandbytes__nf4` the shape and block size
as JSON in bytes. With double quantisation, absmax is one byte per block: a level of `nested_quant_map` times
`nested_absmax`, plus an offset. https://github.com/bitsandbytes-foundation/bitsandbytes, QuantState.as_dict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from normscope.checkpoints.formats.json_headers import parse_object
from normscope.checkpoints.formats.quantised.stored_parts import (
    SMALL,
    Floats,
    Found,
    PackedWeight,
    StoredPart,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.unpacking.nibble_blocks import LEVELS, NibbleBlocks
from normscope.checkpoints.limits import AXES, INT64
from normscope.errors import CorruptCheckpoint

STATE = ".quant_state.bitsandbytes__"
KINDS = ("nf4", "fp4")
ENDINGS = (*(STATE + kind for kind in KINDS), ".absmax")
_PARTS = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
_LARGEST_BLOCK = 1 << 20
_BYTE = 256
UNCLEAR = (
    "its parts are not what bitsandbytes writes. Load it with transformers and bitsandbytes, call "
    "model.dequantize(), and save it"
)


@dataclass(frozen=True)
class NestedScales:
    """Scales that are levels of a byte times the scale of their own block, plus an offset."""

    codes: StoredPart
    levels: StoredPart
    absmax: StoredPart
    block: int
    offset: float

    @cached_property
    def _table(self) -> Floats:
        return self.levels.floats(0, _BYTE)

    def floats(self, first: int, last: int) -> Floats:
        """The scales first … last−1."""
        low = first // self.block
        outer = self.absmax.floats(low, -(-last // self.block))
        which = np.arange(first, last) // self.block - low
        found = self._table[self.codes.bytes_of(first, last)] * outer[which]
        return np.asarray(found + np.float32(self.offset), np.float32)


def find_bitsandbytes(stored: StoredTensors) -> Iterator[Found]:
    """The weights that have a quant_state beside them; those with an absmax alone cannot be read."""
    for name in stored.tensors:
        stem, mark, kind = name.rpartition(STATE)
        if mark and kind in KINDS and stem in stored.tensors:
            yield _four_bits(stored, stem, kind, name)
        elif name.endswith(".absmax") and _lacks_state(stored, name.removesuffix(".absmax")):
            stem = name.removesuffix(".absmax")
            yield UnreadWeight(stem, _present(stored, stem), UNCLEAR)


def _lacks_state(stored: StoredTensors, stem: str) -> bool:
    """Whether a packed weight with a table of levels has no description of its own."""
    packed = stem in stored.tensors and f"{stem}.quant_map" in stored.tensors
    return packed and not any(f"{stem}{STATE}{kind}" in stored.tensors for kind in KINDS)


def _present(stored: StoredTensors, stem: str) -> tuple[str, ...]:
    return (stem, *(name for part in _PARTS if (name := f"{stem}.{part}") in stored.tensors))


def _four_bits(stored: StoredTensors, stem: str, kind: str, state: str) -> Found:
    parts = (*_present(stored, stem), state)
    found = _State.read(stored.part(state), kind)
    extent = None if found is None else _blocks(stored, stem, found)
    if found is None or extent is None:
        return UnreadWeight(stem, parts, UNCLEAR)
    nested = " with double quantisation" if found.nested else ""
    return PackedWeight(stem, found.shape, parts, extent, f"{kind}{nested} (bitsandbytes)")


@dataclass(frozen=True)
class _State:
    """What the JSON beside a weight says; `nested` is how the scales are scaled: block size, offset."""

    shape: tuple[int, ...]
    block: int
    nested: tuple[int, float] | None

    @classmethod
    def read(cls, part: StoredPart | None, kind: str) -> _State | None:
        """The description, if it is complete and possible."""
        if part is None or part.dtype != "uint8" or part.nbytes > SMALL:
            return None
        try:
            content = parse_object(part.small(), part.name)
        except CorruptCheckpoint:
            return None
        sizes: Any = content.get("shape")
        block: Any = content.get("blocksize")
        sound = isinstance(sizes, list) and 0 < len(sizes) <= AXES and all(map(_is_size, sizes))
        if not sound or not _is_block(block) or content.get("quant_type") != kind:
            return None
        inner: Any = content.get("nested_blocksize")
        offset: Any = content.get("nested_offset")
        if inner is None and offset is None:
            return cls(tuple(sizes), block, None)
        finite = type(offset) in (int, float) and math.isfinite(offset)
        return cls(tuple(sizes), block, (inner, float(offset))) if finite and _is_block(inner) else None


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value <= INT64


def _is_block(value: Any) -> bool:
    return type(value) is int and 0 < value <= _LARGEST_BLOCK and value % 2 == 0


def _blocks(stored: StoredTensors, stem: str, state: _State) -> NibbleBlocks | None:
    """The values, if every part has the size that the description implies."""
    weight, absmax, levels, outer, outer_levels = (
        stored.part(name) for name in (stem, *(f"{stem}.{part}" for part in _PARTS))
    )
    numel = math.prod(state.shape)
    if weight is None or weight.nbytes != -(-numel // 2) or not _is_table(levels, LEVELS):
        return None
    count = -(-numel // state.block)
    if absmax is None or absmax.tensor.numel != count:
        return None
    if state.nested is None:
        plain = absmax.dtype == "float32" and outer is None
        return NibbleBlocks(weight, absmax, state.block, numel, levels, True) if plain else None
    block, offset = state.nested
    fits = absmax.dtype == "uint8" and _is_table(outer, -(-count // block)) and _is_table(outer_levels, _BYTE)
    if not fits or outer is None or outer_levels is None:
        return None
    scales = NestedScales(absmax, outer_levels, outer, block, offset)
    return NibbleBlocks(weight, scales, state.block, numel, levels, True)


def _is_table(part: StoredPart | None, count: int) -> bool:
    return part is not None and part.dtype == "float32" and part.tensor.numel == count
