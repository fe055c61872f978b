"""Values of stored tensors as arrays: a few of them, or all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.checkpoints.arrays import as_tensor
from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint, Tensor

Values = NDArray[np.float64]

FEW = 192
"""Elements that are compared between two checkpoints before anything else is read."""
MOST = 1 << 24
"""Elements that are looked at; of a larger tensor, the first ones."""
_NUMPY: dict[str, Any] = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}
_ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Sample:
    """The values of a tensor and the relative size of their last digit.

    `values` has the tensor's shape without axes of length 1, or fewer rows. `settled` says whether
    the tensor is known to be the same at two different checkpoints.
    """

    values: Values
    rounding: float
    settled: bool

    @property
    def tolerance(self) -> float:
        """How far a constant may be from its formula: more if nothing has trained it."""
        return max(1.5 * self.rounding, 1e-3 if self.settled else 1e-5)


def read_values(checkpoint: Checkpoint, tensor: Tensor, start: int, stop: int) -> Values:
    """The elements start … stop−1 of a tensor, as float64."""
    width = WIDTHS[tensor.dtype]
    return to_float64(checkpoint.read(tensor.name, start * width, stop * width), tensor.dtype)


def to_float64(raw: Buffer, dtype: str) -> Values:
    """Raw little-endian elements as float64; signalling values become ordinary NaN."""
    if dtype in _NUMPY:
        with np.errstate(invalid="ignore"):
            return np.frombuffer(raw, _NUMPY[dtype]).astype(np.float64)
    if dtype == "bfloat16":
        wide = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
        with np.errstate(invalid="ignore"):
            return wide.view(np.float32).astype(np.float64)
    return np.asarray(as_tensor(raw, dtype).double().numpy(), dtype=np.float64)


def same_few(first: Checkpoint, last: Checkpoint, tensor: Tensor) -> bool:
    """Whether some elements of a tensor have the same bytes in both checkpoints.

    They are in the middle; if they must be fetched or unpacked, at the beginning, which is read next.
    """
    if first is last:
        return True
    width = WIDTHS[tensor.dtype]
    begin = max(0, tensor.numel // 2 - FEW // 2) if first.zero_copy(tensor.name) else 0
    cut = (begin * width, min(tensor.numel, begin + FEW) * width)
    return last.tensors[tensor.name].dtype == tensor.dtype and _same(first, last, tensor.name, cut)


def same_bytes(first: Checkpoint, last: Checkpoint, tensor: Tensor) -> bool:
    """Whether the elements that are looked at have the same bytes in both checkpoints."""
    return first is last or _same(
        first, last, tensor.name, (0, min(tensor.numel, MOST) * WIDTHS[tensor.dtype])
    )


def _same(first: Checkpoint, last: Checkpoint, name: str, cut: tuple[int, int]) -> bool:
    one, other = (np.frombuffer(checkpoint.read(name, *cut), np.uint8) for checkpoint in (first, last))
    return np.array_equal(one, other)


def shaped(values: Values, shape: tuple[int, ...]) -> Values:
    """Values with the tensor's shape, without axes of length 1; whole rows of it, if they are not all."""
    axes = [n for n in shape if n != 1]
    if not axes or values.size == int(np.prod(axes)):
        return values.reshape(axes)
    row = int(np.prod(axes[1:]))
    return values[: values.size // row * row].reshape(-1, *axes[1:])


def rounding_of(values: Values, dtype: str) -> float:
    """The relative size of the last digit: that of the dtype, or of a shorter one they were rounded to."""
    for shorter in ("bfloat16", "float16", "float32"):
        if _ROUNDING[shorter] > _ROUNDING.get(dtype, 0.125) and _fits(values, shorter):
            return _ROUNDING[shorter]
    return _ROUNDING.get(dtype, 0.125)


def _fits(values: Values, dtype: str) -> bool:
    """Whether all values are exact in a shorter dtype, and too many of them to be so by accident."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            single = values.astype(np.float32)
            short = (single.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
        else:
            short = values.astype(np.float16 if dtype == "float16" else np.float32).astype(np.float64)
    return bool(np.all((short == values) | ~np.isfinite(values)))
