"""The force-directed layout of many works: repulsion by a density on a mesh, in numpy.

The sum over all pairs is a convolution of the works' weights with the force of one of them. On a mesh,
Fourier transforms compute it in the same time however many works there are: 140 steps of 5,000 works take
half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from normscope.views.literature.force_layout import GRAVITY

Floats = NDArray[np.float64]

CELLS = 96


def settled_on_mesh(
    points: Sequence[tuple[float, float]],
    pairs: Sequence[tuple[int, int]],
    weights: Sequence[float],
    steps: int,
) -> list[tuple[float, float]]:
    """Let the forces act, in ever smaller steps."""
    places, mass = np.array(points, dtype=np.float64), np.array(weights, dtype=np.float64)
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    reach = np.sqrt(len(points))
    for step in range(steps):
        force = mesh_repulsion(places, mass) + _pulls(places, ends) - GRAVITY * mass[:, None] * places
        size = np.hypot(force[:, 0], force[:, 1])
        longest = 0.3 * reach * (1 - step / steps) ** 1.5
        moved = np.minimum(longest, 0.2 * size / mass) / np.maximum(size, 1e-12)
        places += moved[:, None] * force
    return [(float(x), float(y)) for x, y in places]


def _pulls(places: Floats, ends: NDArray[np.int64]) -> Floats:
    distance = places[ends[:, 1]] - places[ends[:, 0]]
    n = len(places)
    columns = [
        np.bincount(ends[:, 0], distance[:, k], n) - np.bincount(ends[:, 1], distance[:, k], n)
        for k in (0, 1)
    ]
    return np.stack(columns, axis=1)


def mesh_repulsion(places: Floats, mass: Floats) -> Floats:
    """The force wᵢ·wⱼ/d away from all other works, exact for those several cells of the mesh away."""
    low = places.min(axis=0)
    cell = max(float((places.max(axis=0) - low).max()) / (CELLS - 2), 1e-6)
    corners, shares = _shares((places - low) / cell)
    density = np.bincount(corners.ravel(), (shares * mass[:, None]).ravel(), CELLS * CELLS)
    field = _field(density.astype(np.float64).reshape(CELLS, CELLS)) / cell
    gathered: Floats = (field.reshape(CELLS * CELLS, 2)[corners] * shares[:, :, None]).sum(axis=1)
    return gathered * mass[:, None]


def _shares(at: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The four corners of the cell around each place, and the share of each corner."""
    base = np.floor(at).astype(np.int64)
    rest = at - base
    steps = ((0, 0), (0, 1), (1, 0), (1, 1))
    corners = np.stack([(base[:, 0] + a) * CELLS + base[:, 1] + b for a, b in steps], axis=1)
    sides = [(1 - rest[:, k], rest[:, k]) for k in (0, 1)]
    shares = np.stack([sides[0][a] * sides[1][b] for a, b in steps], axis=1)
    return corners, shares


def _field(density: Floats) -> Floats:
    """The convolution of a density with r/|r|², without the wrap-around of a Fourier transform."""
    size = (2 * CELLS, 2 * CELLS)
    transformed = np.fft.rfft2(density, size)
    parts = [np.fft.irfft2(transformed * kernel, size)[:CELLS, :CELLS] for kernel in _kernels()]
    return np.stack(parts, axis=2)


@cache
def _kernels() -> tuple[NDArray[np.complex128], ...]:
    """The transforms of x/|r|² and y/|r|²."""
    offsets = np.fft.fftfreq(2 * CELLS, 1 / (2 * CELLS))
    square = offsets[:, None] ** 2 + offsets[None, :] ** 2
    square[0, 0] = 1.0
    return tuple(np.fft.rfft2(axis / square) for axis in (offsets[:, None], offsets[None, :]))
