"""Compare every checkpoint of a series with every other, in a small sample of their weights.

The same elements are read in every checkpoint: if the file is mapped, short pieces spread
evenly over the matrices; if each piece is a request or must be unpacked, the beginnings of
the largest ones, each weighted by the size of its tensor. A sample of one model is itself a
path of parameters, so everything that holds for distances holds for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from normscope.checkpoints.arrays import read_elements
from normscope.checkpoints.base import Checkpoint
from normscope.weights.soundness.findings import Array
from normscope.weights.soundness.pairs import PairTable, add_up, products_of_rows

ELEMENTS = 1 << 16  # sampled from each checkpoint
IN_MEMORY = 1 << 23  # elements kept of all checkpoints together
PIECE = 1 << 10  # elements read at a time
REQUESTS = 32  # pieces read from a checkpoint whose reads are copies
MOST_PRODUCTS = 1 << 25  # inner products kept while tensors are compared apart; then they are merged


class Piece(NamedTuple):
    """Elements start … stop−1 of a tensor; `weight` is how many elements of the model each stands for."""

    name: str
    start: int
    stop: int
    weight: float


def sampled_table(
    steps: NDArray[np.int64], checkpoints: Sequence[Checkpoint], sizes: Mapping[str, int]
) -> PairTable:
    """The table of these checkpoints over some tensors, given with their sizes; exact if they are small."""
    pieces = choose_pieces(checkpoints[0], sizes, min(ELEMENTS, IN_MEMORY // len(checkpoints)))
    rows = np.stack([_read(checkpoint, pieces) for checkpoint in checkpoints])
    found, column = [], 0
    for name, several in groupby(pieces, key=lambda piece: piece.name):
        width = sum(piece.stop - piece.start for piece in several)
        found.append((sizes[name], slice(column, column + width)))
        column += width
    merged = _merge(found, MOST_PRODUCTS // len(checkpoints) ** 2)
    return add_up(steps, (products_of_rows(numel, rows[:, columns]) for numel, columns in merged))


def _merge(found: list[tuple[int, slice]], most: int) -> list[tuple[int, slice]]:
    """Neighbouring tensors taken together, so that at most so many are compared apart."""
    if len(found) <= max(1, most):
        return found
    together = [part for part in np.array_split(np.arange(len(found)), max(1, most)) if len(part)]
    return [
        (sum(found[i][0] for i in part), slice(found[part[0]][1].start, found[part[-1]][1].stop))
        for part in together
    ]


def choose_pieces(checkpoint: Checkpoint, sizes: Mapping[str, int], elements: int) -> list[Piece]:
    """The pieces to read, with about `elements` elements together; `sizes` are the numbers of elements."""
    full = {name: size for name, size in sizes.items() if size}
    if sum(full.values()) <= elements:
        return [Piece(name, 0, size, 1.0) for name, size in full.items()]
    if cheap_to_sample(checkpoint, full):
        return list(_spread(full, elements))
    largest = sorted(full, key=lambda name: -full[name])[:REQUESTS]
    most = max(1, elements // len(largest))
    stops = {name: min(full[name], most) for name in largest}
    return [Piece(name, 0, stop, full[name] / stop) for name, stop in stops.items()]


def cheap_to_sample(checkpoint: Checkpoint, sizes: Mapping[str, int]) -> bool:
    """Whether pieces can be read from mapped memory, without a request and without unpacking."""
    return all(checkpoint.zero_copy(name) for name in sizes)


def _spread(sizes: Mapping[str, int], elements: int) -> Iterator[Piece]:
    """Pieces at equal intervals over all tensors laid end to end; a piece ends where its tensor ends."""
    every = math.ceil(sum(sizes.values()) * PIECE / elements)
    first = 0  # element of the tensor at which the next piece begins
    for name, size in sizes.items():
        for start in range(first, size, every):
            yield Piece(name, start, min(start + PIECE, size), every / PIECE)
        first = (first - size) % every if first < size else first - size


def _read(checkpoint: Checkpoint, pieces: Sequence[Piece]) -> Array:
    found = np.empty(sum(piece.stop - piece.start for piece in pieces))
    column = 0
    for name, start, stop, weight in pieces:
        end = column + stop - start
        np.multiply(_floats(checkpoint, name, start, stop), math.sqrt(weight), out=found[column:end])
        column = end
    return found


def _floats(checkpoint: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.floating]:
    """Elements of a tensor; without torch for the usual dtypes, because importing it would cost more."""
    dtype = checkpoint.tensors[name].dtype
    if dtype in ("float64", "float32", "float16"):
        return np.frombuffer(read_elements(checkpoint, name, (start, stop), dtype), dtype)
    if dtype == "bfloat16":
        raw = np.frombuffer(read_elements(checkpoint, name, (start, stop), dtype), "<u2")
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(read_elements(checkpoint, name, (start, stop), "float64"), np.float64)
