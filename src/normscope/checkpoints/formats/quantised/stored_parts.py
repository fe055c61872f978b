"""What a scheme sees of a checkpoint: the stored tensors, what config.json says, and the bytes of parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.base import ITEM_SIZES, Buffer, Checkpoint, Tensor
from normscope.checkpoints.byte_cache import ByteCache, new_owner
from normscope.checkpoints.extents import Extent
from normscope.errors import CorruptCheckpoint

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

SMALL = 1 << 16
"""Bytes up to which a part is read when the checkpoint is opened: a shape, levels, a description."""
_FLOATS = {"float32": "<f4", "float16": "<f2", "float64": "<f8"}
_held = ByteCache(1 << 27)
"""Scales, which are asked for again with every piece of a weight, and parts of files that are not here."""
_PIECE = 1 << 23
_SHORT = 1 << 20


@dataclass(frozen=True)
class StoredPart:
    """One stored tensor of a checkpoint, read as bytes, whatever its dtype."""

    checkpoint: Checkpoint
    tensor: Tensor
    owner: int = field(default_factory=new_owner)

    @property
    def name(self) -> str:
        """The name in the file."""
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the file."""
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """The dtype in the file."""
        return self.tensor.dtype

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return self.tensor.numel * ITEM_SIZES.get(self.dtype, 0)

    @cached_property
    def mapped(self) -> bool:
        """Whether its bytes are memory of this machine, so that reading them again costs nothing."""
        return self.checkpoint.zero_copy(self.name)

    def read(self, start: int, stop: int) -> Buffer:
        """The bytes start … stop−1; of short parts, and of files that are elsewhere, from held pieces."""
        if self.mapped and self.nbytes > _SHORT:
            return self.checkpoint.read(self.name, start, stop)
        first, last = start // _PIECE, -(-stop // _PIECE)
        cuts = ((i, max(0, start - i * _PIECE), min(_PIECE, stop - i * _PIECE)) for i in range(first, last))
        return b"".join(memoryview(self._piece(i))[low:high] for i, low, high in cuts)

    def _piece(self, index: int) -> Buffer:
        found = _held.get(self.owner, index)
        if found is None:
            start = index * _PIECE
            found = bytes(self.checkpoint.read(self.name, start, min(self.nbytes, start + _PIECE)))
            _held.put(self.owner, index, found)
        return found

    def drop(self, start: int, stop: int) -> None:
        """Release mapped pages that are not read again."""
        self.checkpoint.drop(self.name, start, stop)

    def bytes_of(self, start: int, stop: int) -> Bytes:
        """The bytes start … stop−1, as an array that must not be written to."""
        return np.frombuffer(self.read(start, stop), np.uint8)

    def floats(self, first: int, last: int) -> Floats:
        """The elements first … last−1 as float32: of a scale, in any of the dtypes that scales have."""
        width = ITEM_SIZES[self.dtype]
        return as_float32(self.bytes_of(first * width, last * width), self.dtype)

    def small(self) -> bytes:
        """All of a small part; CorruptCheckpoint if it is not small."""
        if self.nbytes > SMALL:
            raise CorruptCheckpoint(
                f"{self.name[:200]!r} has {self.nbytes:,} bytes (limit {SMALL:,} for a part of this kind)."
            )
        return bytes(self.read(0, self.nbytes))


SCALES = frozenset((*_FLOATS, "bfloat16", "float8_e8m0fnu", "float8_e4m3fn", "float8_e5m2", "uint8"))
"""Dtypes that scales have; uint8 is an exponent, as in E8M0."""


def as_float32(raw: Bytes, dtype: str) -> Floats:
    """Elements of a scale as float32; E8M0, also as uint8, is 2 to the power of the byte − 127."""
    if dtype in _FLOATS:
        return raw.view(_FLOATS[dtype]).astype(np.float32)
    if dtype == "bfloat16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype in ("float8_e8m0fnu", "uint8"):
        powers = np.ldexp(np.float32(1), raw.astype(np.int32) - 127)
        return np.where(raw == 255, np.float32(np.nan), powers).astype(np.float32)
    import torch

    return torch.from_numpy(raw.copy()).view(getattr(torch, dtype)).float().numpy()


@dataclass(frozen=True)
class StoredTensors:
    """The tensors of a checkpoint as they are stored, and the settings of quantisation that lie beside it."""

    checkpoint: Checkpoint
    read_config: Callable[[], Mapping[str, Any]]

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Name → tensor."""
        return self.checkpoint.tensors

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The `quantization_config`; empty if there is none."""
        return self.read_config()

    @property
    def method(self) -> str:
        """The config's `quant_method`, in lower case; empty if there is none."""
        return str(self.config.get("quant_method", "")).lower()[:40]

    def part(self, name: str) -> StoredPart | None:
        """A stored tensor, if there is one of that name."""
        tensor = self.tensors.get(name)
        known = tensor is not None and tensor.dtype in ITEM_SIZES
        return StoredPart(self.checkpoint, tensor) if known and tensor is not None else None


@dataclass(frozen=True)
class PackedWeight:
    """A weight that can be dequantised: its name and shape, the tensors it is stored in, its values."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    extent: Extent
    kind: str
    """What the answer says it was dequantised from."""
    unused: Mapping[str, str] = field(default_factory=dict)
    """Stored tensors beside it that are not needed, each with the reason."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class UnreadWeight:
    """A packed weight that cannot be dequantised: the tensors it is stored in, and why."""

    name: str
    parts: tuple[str, ...]
    reason: str


Found: TypeAlias = PackedWeight | UnreadWeight
