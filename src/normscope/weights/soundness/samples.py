"""Estimate the distances between all checkpoints of a series from a small sample of their weights.

The same elements are read in every checkpoint: if the file is mapped, short pieces spread
evenly over the whole model; if each piece is a request or must be unpacked, the beginnings of
the largest tensors, each weighted by the size of its tensor.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from normscope.checkpoints.arrays import read_elements
from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import Entry
from normscope.progress import Progress, silent
from normscope.weights.soundness.findings import Array

ELEMENTS = 1 << 18  # sampled from each checkpoint
IN_MEMORY = 1 << 23  # elements kept of all checkpoints together
PIECE = 1 << 10  # elements read at a time
REQUESTS = 32  # pieces read from a checkpoint whose reads are copies


class Piece(NamedTuple):
    """Elements start … stop−1 of a tensor; `weight` is how many elements of the model each stands for."""

    name: str
    start: int
    stop: int
    weight: float


def sampled_distances(entries: Sequence[Entry], names: Collection[str], progress: Progress = silent) -> Array:
    """Estimates of ‖θᵢ − θⱼ‖² over these tensors for all pairs, [n, n]; exact if the model is small."""
    pieces: list[Piece] = []
    rows: list[Array] = []
    for done, entry in enumerate(entries):
        progress(done, len(entries), "sampling weights")
        checkpoint = entry.open()
        try:
            pieces = pieces or choose_pieces(checkpoint, names, min(ELEMENTS, IN_MEMORY // len(entries)))
            rows.append(_read(checkpoint, pieces))
        finally:
            checkpoint.close()
    return squared_distances(np.stack(rows))


def squared_distances(rows: Array) -> Array:
    """The squared distance of every row from every other, [n, n]."""
    moved = rows - rows[0]  # or rounding of the large weights would hide small moves
    products: Array = moved @ moved.T
    squares: Array = np.diag(products)
    return np.maximum(squares[:, None] + squares - 2 * products, 0.0)


def choose_pieces(checkpoint: Checkpoint, names: Collection[str], elements: int) -> list[Piece]:
    """The pieces to read, with about `elements` elements together."""
    sizes = {name: t.numel for name, t in checkpoint.tensors.items() if name in names and t.numel}
    if sum(sizes.values()) <= elements:
        return [Piece(name, 0, size, 1.0) for name, size in sizes.items()]
    if all(checkpoint.zero_copy(name) for name in sizes):
        return list(_spread(sizes, elements))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:REQUESTS]
    most = max(1, elements // len(largest))
    stops = {name: min(sizes[name], most) for name in largest}
    return [Piece(name, 0, stop, sizes[name] / stop) for name, stop in stops.items()]


def _spread(sizes: Mapping[str, int], elements: int) -> Iterator[Piece]:
    """Pieces at equal intervals over all tensors laid end to end; a piece ends where its tensor ends."""
    every = math.ceil(sum(sizes.values()) * PIECE / elements)
    first = 0  # element of the tensor at which the next piece begins
    for name, size in sizes.items():
        for start in range(first, size, every):
            yield Piece(name, start, min(start + PIECE, size), every / PIECE)
        first = (first - size) % every if first < size else first - size


def _read(checkpoint: Checkpoint, pieces: Sequence[Piece]) -> Array:
    parts = []
    for name, start, stop, weight in pieces:
        values = np.frombuffer(read_elements(checkpoint, name, (start, stop), "float64"), dtype=np.float64)
        parts.append(values * math.sqrt(weight))
    return np.concatenate(parts) if parts else np.zeros(1)
