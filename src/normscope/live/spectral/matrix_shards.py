"""Which matrices a live model has, and where this rank's part of each lies in it.

    plain tensor     the whole matrix
    DTensor          some rows and columns: the indices along each dimension, as the placements divide it
    FSDP1            a range of the flattened matrix: the rest of a row, whole rows, the beginning of a row

A stack of experts is a matrix for each, a convolution one for each place of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from normscope.anatomy import in_scope
from normscope.errors import ModelError
from normscope.live.model.sharding import Layout, tied_names
from normscope.live.model.zero_partitions import is_partitioned
from normscope.run import TensorRow
from normscope.weights.spectrum.matrix_parts import has_matrices, number_of_parts, number_of_places
from normscope.weights.tensor_rows import tensor_rows

MOST_PARTS = 256
"""Matrices of one tensor; a stack of more is left out."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class LiveMatrix:
    """One matrix of the whole model; several of one tensor and part are places of a convolution."""

    tensor: int
    """The position of its tensor among the parameters of the model."""
    part: int
    rows: int
    columns: int
    number: int
    """Which of the tensor's matrices it is."""


@dataclass(frozen=True)
class ShardBlock:
    """A part of a matrix in this rank's memory: where it is, and how it is cut from the local tensor."""

    rows: Indices | slice
    columns: Indices | slice
    cut: Callable[[Tensor], Tensor]


def live_matrices(layout: Layout) -> tuple[list[LiveMatrix], dict[str, str]]:
    """The matrices of the body, and the reasons for tensors that are left out; the same on every rank."""
    tensors = tensor_rows(layout.infos, tied_names(layout.infos), known={})
    counted = [i for i, row in enumerate(tensors) if row.tied_to is None and has_matrices(row)]
    found: list[LiveMatrix] = []
    left_out: dict[str, str] = {}
    for i in in_scope(counted, "body", lambda i: (tensors[i].role, tensors[i].shape)):
        try:
            found += _matrices_of(i, tensors[i])
        except ModelError as error:
            left_out[tensors[i].name] = str(error)
    return found, left_out


def _matrices_of(index: int, row: TensorRow) -> list[LiveMatrix]:
    parts, places = number_of_parts(row), number_of_places(row)
    if "complex" in row.dtype:
        raise ModelError("complex matrices are not measured")
    if max(parts, places) > MOST_PARTS:
        raise ModelError(f"a stack of {parts} matrices; at most {MOST_PARTS} are measured")
    if parts > 1:
        return [LiveMatrix(index, part, row.shape[1], row.shape[2], part) for part in range(parts)]
    if len(row.shape) > 2 and row.numel != row.shape[0] * row.shape[1] * places:
        raise ModelError(
            f"a tensor of the shape {list(row.shape)} is neither a matrix nor a stack of matrices"
        )
    return [LiveMatrix(index, -1, row.shape[0], row.shape[1], place) for place in range(places)]


def blocks(
    parameter: nn.Parameter, start: int | None, shape: Sequence[int], several: Sequence[LiveMatrix]
) -> dict[int, list[ShardBlock]]:
    """The parts of these matrices, all of one parameter, in this rank's memory, by number.

    `start` is where the parameter begins in the flattened whole, if FSDP1 has flattened it.
    """
    if is_partitioned(parameter):
        raise ModelError("live spectral norms are not measured with DeepSpeed's ZeRO")
    if start is not None:
        return {each.number: list(_of_range(each, start, parameter.numel(), len(shape))) for each in several}
    indices = _indices(parameter, shape)
    own = parameter.to_local().shape if isinstance(parameter, DTensor) else parameter.shape
    if [len(each) for each in indices] != list(own):
        raise ModelError(f"its shard has the shape {list(own)}, which its placements do not explain")
    return {each.number: list(_of_grid(each, indices)) for each in several}


def _indices(parameter: Tensor, shape: Sequence[int]) -> list[Indices]:
    """Along each dimension, where the local elements are in the whole tensor."""
    found = [torch.arange(length) for length in shape]
    if isinstance(parameter, DTensor):
        coordinate = parameter.device_mesh.get_coordinate() or ()
        placements: Sequence[Any] = parameter.placements
        for axis, (place, at) in enumerate(zip(placements, coordinate, strict=True)):
            if place.is_partial():
                raise ModelError("a parameter that is a partial sum on each rank is not measured")
            if not place.is_replicate():
                found[place.dim] = _own_piece(place, found[place.dim], parameter.device_mesh.size(axis), at)
    return [each.numpy() for each in found]


def _own_piece(placement: Any, indices: Tensor, parts: int, at: int) -> Tensor:
    """The indices that a rank keeps when a dimension is divided, by the placement's own rule."""
    shaped = indices.reshape([1] * placement.dim + [-1])
    pieces, _ = placement._split_tensor(shaped, parts, with_padding=False, contiguous=True)
    piece: Tensor = pieces[at].reshape(-1)
    return piece


def _of_grid(matrix: LiveMatrix, indices: Sequence[Indices]) -> Iterator[ShardBlock]:
    """The block of a matrix in a tensor that is cut along its dimensions."""
    if matrix.part >= 0:
        for own in np.flatnonzero(indices[0] == matrix.part).tolist():
            yield ShardBlock(_sliced(indices[1]), _sliced(indices[2]), _expert(own))
        return
    rows, columns = map(_sliced, indices[:2])
    if len(indices) == 2:
        yield ShardBlock(rows, columns, lambda local: local)
        return
    kept = np.stack(np.meshgrid(*indices[2:], indexing="ij")).reshape(len(indices) - 2, -1)
    here = [place for place in range(kept.shape[1]) if _number(kept[:, place], indices, matrix)]
    for place in here:
        yield ShardBlock(rows, columns, _kernel_place(place))


def _expert(own: int) -> Callable[[Tensor], Tensor]:
    return lambda local: local[own]


def _kernel_place(place: int) -> Callable[[Tensor], Tensor]:
    return lambda local: local.reshape(*local.shape[:2], -1)[:, :, place]


def _number(position: Indices, indices: Sequence[Indices], matrix: LiveMatrix) -> bool:
    """Whether a place of the kernel is that of the matrix; kernels themselves are never divided."""
    lengths = [len(each) for each in indices[2:]]
    return bool(np.ravel_multi_index(tuple(position), lengths) == matrix.number)


def _of_range(matrix: LiveMatrix, start: int, count: int, dimensions: int) -> Iterator[ShardBlock]:
    """The blocks of a matrix in a range of the flattened tensor: whole rows, and parts of two others."""
    if dimensions > 2 and matrix.part < 0:
        raise ModelError("a convolution that FSDP1 has flattened is not measured")
    width = matrix.columns
    first = max(matrix.part, 0) * matrix.rows * width
    begin, end = max(start, first) - first, min(start + count, first + matrix.rows * width) - first
    offset = first - start
    while begin < end:
        row, column = divmod(begin, width)
        whole = (end - begin) // width if column == 0 else 0
        stop = begin + whole * width if whole else min(end, (row + 1) * width)
        columns = slice(0, width) if whole else slice(column, column + stop - begin)
        yield ShardBlock(slice(row, row + max(whole, 1)), columns, _cut(begin + offset, stop + offset, whole))
        begin = stop


def _cut(begin: int, stop: int, rows: int) -> Callable[[Tensor], Tensor]:
    return lambda local: local.reshape(-1)[begin:stop].reshape(max(rows, 1), -1)


def _sliced(indices: Indices) -> Indices | slice:
    """The same as a slice, where they follow each other."""
    if len(indices) and indices[-1] - indices[0] == len(indices) - 1 and (np.diff(indices) == 1).all():
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
