"""Which tensors are a weight of GPTQ or of AWQ, told apart by their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from normscope.checkpoints.formats.quantised.column_packed import ColumnPacked
from normscope.checkpoints.formats.quantised.stored_parts import (
    Found,
    PackedWeight,
    StoredPart,
    StoredTensors,
    UnreadWeight,
)
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import LARGEST_UNIT
from normscope.checkpoints.formats.quantised.unpacking.packed_bits import RUN

ENDINGS = (".qweight",)
_BITS = (2, 3, 4, 8)
_SCALES = ("float16", "bfloat16", "float32")
_SAMPLE = 1 << 16
_OLD, _NEW = ("gptq", ""), ("gptq_v2",)
UNCLEAR = (
    "its qweight, qzeros, scales and g_idx do not have the shapes of GPTQ or of AWQ's GEMM layout. Load it "
    "with the tool that wrote it, and save the dequantised model"
)
NO_VERSION = (
    "GPTQ stores zero points in two ways, and nothing here says in which: put the config.json of the model, "
    "with its quantization_config, beside the file"
)
OTHER_LAYOUT = (
    "its config names a layout that only a GPU kernel reads. Load it with GPTQModel or AutoAWQ, and save the "
    "dequantised model"
)


def find_gptq_and_awq(stored: StoredTensors) -> Iterator[Found]:
    """The weights of modules that have a qweight with zero points and scales."""
    version = None
    for name in stored.tensors:
        parts = _Parts.of(stored, name.removesuffix("qweight")) if name.endswith(ENDINGS) else None
        if parts is None:
            continue
        found = parts.awq() or parts.gptq()
        if found is None:
            yield UnreadWeight(f"{parts.stem}weight", parts.names, UNCLEAR)
            continue
        if version is None and not found.ordered:
            version = _zero_shift(stored, parts.qzeros, found.bits)
        yield _weight(parts, found, version, str(stored.config.get("checkpoint_format", "")))


def _weight(parts: _Parts, found: ColumnPacked, shift: int | None, layout: str) -> Found:
    name = f"{parts.stem}weight"
    if layout.lower() not in (*_OLD, *_NEW, "gemm"):
        return UnreadWeight(name, parts.names, OTHER_LAYOUT)
    if not found.ordered and shift is None:
        return UnreadWeight(name, parts.names, NO_VERSION)
    extent = found if found.ordered else parts.column_packed(found.bits, found.length, False, shift or 0)
    version = "GPTQ" if shift else "GPTQ v2"
    kind = "int4 (AWQ)" if found.ordered else f"int{found.bits} ({version})"
    return PackedWeight(name, (found.scales.shape[1], found.length), parts.names, extent, kind)


def _zero_shift(stored: StoredTensors, qzeros: StoredPart, bits: int) -> int | None:
    """What is added to stored zero points: as the config says, or as those of symmetric weights show."""
    layout = str(stored.config.get("checkpoint_format", "")).lower()
    if layout in _NEW:
        return 0
    if stored.method == "gptq" or layout == "gptq" or "bits" in stored.config:
        return 1
    middle = 1 << (bits - 1)
    words = qzeros.bytes_of(0, min(_SAMPLE, qzeros.nbytes) // (4 * bits) * 4 * bits)
    for value, shift in ((middle - 1, 1), (middle, 0)):
        pattern = sum(value << (bits * i) for i in range(RUN)).to_bytes(4 * bits, "little")
        if words.size and np.array_equal(words.reshape(-1, 4 * bits), _repeated(pattern, words.size)):
            return shift
    return None


def _repeated(pattern: bytes, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.frombuffer(pattern * (size // len(pattern)), np.uint8).reshape(-1, len(pattern))


@dataclass(frozen=True)
class _Parts:
    """The tensors of one module."""

    stem: str
    qweight: StoredPart
    qzeros: StoredPart
    scales: StoredPart
    g_idx: StoredPart | None

    @classmethod
    def of(cls, stored: StoredTensors, stem: str) -> _Parts | None:
        """The parts, if the three that are always there are."""
        three = [stored.part(stem + last) for last in ("qweight", "qzeros", "scales")]
        qweight, qzeros, scales = three
        if qweight is None or qzeros is None or scales is None:
            return None
        return cls(stem, qweight, qzeros, scales, stored.part(f"{stem}g_idx"))

    @property
    def names(self) -> tuple[str, ...]:
        """Their names in the file."""
        found = (self.qweight, self.qzeros, self.scales, self.g_idx)
        return tuple(part.name for part in found if part is not None)

    @property
    def _plain(self) -> bool:
        """Whether dtypes are as documented, and there are two axes."""
        packed = all(part.dtype == "int32" for part in (self.qweight, self.qzeros))
        flat = all(len(part.shape) == 2 and 0 not in part.shape for part in self._three)
        return packed and flat and self.scales.dtype in _SCALES

    @property
    def _three(self) -> tuple[StoredPart, ...]:
        return self.qweight, self.qzeros, self.scales

    def column_packed(self, bits: int, length: int, ordered: bool, shift: int = 0) -> ColumnPacked:
        """The values, once the layout is known."""
        return ColumnPacked(
            self.qweight, self.qzeros, self.scales, self.g_idx, bits, length, ordered, zero_shift=shift
        )

    def awq(self) -> ColumnPacked | None:
        """The values, if words run along the outputs: eight to a word."""
        if not self._plain or self.g_idx is not None:
            return None
        (length, words), (groups, zeros), (scaled, out) = (part.shape for part in self._three)
        fits = 8 * words == out == 8 * zeros and groups == scaled and length % groups == 0
        return self.column_packed(4, length, True) if fits and 8 * length <= LARGEST_UNIT else None

    def gptq(self) -> ColumnPacked | None:
        """The values, if words run along the inputs; how many bits there are follows from the zero points."""
        if not self._plain:
            return None
        (words, columns), (groups, zeros), (scaled, out) = (part.shape for part in self._three)
        bits, rest = divmod(zeros * RUN, out)
        fits = columns == out and groups == scaled and not rest and out % RUN == 0 and bits in _BITS
        if not fits or words % bits:
            return None
        length = words * RUN // bits
        return self.column_packed(bits, length, False) if self._indexed(length, groups) else None

    def _indexed(self, length: int, groups: int) -> bool:
        """Whether the group of each input is known, and a group of columns is not too long."""
        if length * RUN > LARGEST_UNIT:
            return False
        if self.g_idx is None:
            return length % groups == 0
        return self.g_idx.shape == (length,) and self.g_idx.dtype in ("int32", "int64")
