"""The matrices in a tensor: itself, the slices of a convolution, or one for each expert.

A convolution [out, in, …] is cut into one matrix [out, in] for each place of its kernel, whose singular
values are taken together, as WeightWatcher does. A stack [experts, rows, columns] has a spectrum for each
expert.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.errors import MatrixError
from normscope.run import TensorRow

LARGEST_KERNEL = 64
"""Places of a convolution's kernel; a tensor with more is a stack of matrices."""
LEAST_SIDE = 2
Matrix = NDArray[np.floating]


def has_matrices(row: TensorRow) -> bool:
    """Whether a tensor has two sides longer than 1, and is no vector in another shape."""
    long = [length for length in row.shape if length >= LEAST_SIDE]
    return len(row.shape) >= 2 and len(long) >= 2


def number_of_parts(row: TensorRow) -> int:
    """How many spectra the tensor has: one, or one for each expert."""
    return row.shape[0] if _is_stack(row) else 1


def number_of_places(row: TensorRow) -> int:
    """How many matrices are taken together in a spectrum: one for each place of a convolution's kernel."""
    convolution = len(row.shape) > 2 and not _is_stack(row) and _is_convolution(row.shape)
    return math.prod(row.shape[2:]) if convolution else 1


def matrices(row: TensorRow, values: Matrix, part: int) -> list[Matrix]:
    """The matrices of one part of a tensor; several are the slices of a convolution."""
    if values.ndim == 2:
        return [values]
    if _is_stack(row):
        return [values[part].reshape(values.shape[1], -1)]
    if _is_convolution(row.shape):
        flat = values.reshape(*values.shape[:2], -1)
        return [flat[:, :, place] for place in range(flat.shape[2])]
    raise MatrixError(f"a tensor of the shape {list(row.shape)} is neither a matrix nor a stack of matrices")


def _is_stack(row: TensorRow) -> bool:
    """[experts, rows, columns]: the role says so, or the last two sides are both long."""
    if len(row.shape) != 3:
        return False
    return row.role.startswith("expert") or (
        not _is_convolution(row.shape) and min(row.shape[1:]) > LEAST_SIDE
    )


def _is_convolution(shape: Sequence[int]) -> bool:
    return len(shape) > 2 and math.prod(shape[2:]) <= LARGEST_KERNEL
