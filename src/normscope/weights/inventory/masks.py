"""Masks and banks of filters, recognised by where they are zero: in a pattern that no training leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from normscope.checkpoints.buffer_names import MASK, TRANSFORM
from normscope.weights.inventory.peeks import Sample, Values

VERY_NEGATIVE = -100.0
"""What masks add to scores that must not count: −100 (Swin), −10⁴, −10⁹, the smallest float, −∞."""
_SMALLEST = 4  # rows and columns: a smaller triangle of 0 and 1 may be anything
_ROWS = 512  # rows of a matrix that are compared with the pattern
_FILTERS, _WIDTHS = 8, 3  # filters of a bank, and different widths among them, at the least


def mask(sample: Sample, kinds: frozenset[str]) -> str | None:
    """Whether the values are those of a mask; "mask" in `kinds` says that the name is one."""
    values = sample.values
    if values.ndim == 0:
        return MASK if values <= -9999 else None
    pair = _two_values(values)
    if pair is None:
        return MASK if "mask" in kinds and _usual_and_constant(values) else None
    low, high = pair
    if high == 0 and low <= (VERY_NEGATIVE if values.ndim > 1 or "mask" in kinds else -9999):
        return MASK
    if "mask" in kinds and pair == (0, 1):
        return MASK
    return MASK if 0 in pair and values.ndim > 1 and _is_pattern(values != 0) else None


def _two_values(values: Values) -> tuple[float, float] | None:
    """The smaller and the larger of the two values that occur; None for one, for more, or with NaN."""
    low, high = float(values.min()), float(values.max())
    both = low < high and bool(np.all((values == low) | (values == high)))
    return (low, high) if both else None


def _usual_and_constant(values: Values) -> bool:
    """All −∞ or very negative, as a mask under a clear name; all ones or zeros may be a trained gate."""
    return values.size > 1 and float(values.max()) <= VERY_NEGATIVE


def _is_pattern(on: NDArray[np.bool_]) -> bool:
    """Whether every matrix (the last two axes) is a triangle, a staircase, a band, or block-diagonal."""
    rows, columns = on.shape[-2:]
    if min(rows, columns) < _SMALLEST:
        return False
    stacked = on.reshape(-1, rows, columns)[:4]
    return all(_is_band(matrix) or _is_staircase(matrix) or _is_blocks(matrix) for matrix in stacked)


def _is_band(on: NDArray[np.bool_]) -> bool:
    """Whether an element depends only on its distance from the diagonal, and several diagonals are on.

    One diagonal alone is the identity, which parameters are initialised with.
    """
    part = on[:_ROWS, :_ROWS]
    if part.all() or not part.any() or not np.array_equal(part[1:, 1:], part[:-1, :-1]):
        return False
    diagonals = np.concatenate([part[0, ::-1], part[1:, 0]])  # from the upper right to the lower left
    changes = int(np.count_nonzero(diagonals[1:] != diagonals[:-1]))
    return changes <= 2 and 2 <= int(diagonals.sum()) <= diagonals.size - 2


def _is_staircase(on: NDArray[np.bool_]) -> bool:
    """Whether each row is on up to some column, or from it on, and the columns rise or fall in steps."""
    part = on[:_ROWS, :_ROWS]
    rows = part if part[:, 0].mean() >= part[:, -1].mean() else part[:, ::-1]
    lengths = rows.sum(axis=1)
    steps = np.diff(lengths)
    if not np.array_equal(rows, np.arange(rows.shape[1]) < lengths[:, None]):
        return False
    return bool((steps >= 0).all() or (steps <= 0).all()) and np.unique(lengths).size >= 3


def _is_blocks(on: NDArray[np.bool_]) -> bool:
    """Whether the matrix says which of its rows belong together: equal rows, in blocks of two or more."""
    size = on.shape[0]
    if on.shape[1] != size or size < 2 * _SMALLEST or size > 4 * _ROWS or on.all():
        return False
    counts = on.sum(axis=1)
    if counts.min() < 2 or not on.diagonal().all() or not np.array_equal(on, on.T):
        return False
    leaders = on.argmax(axis=1)  # the first row of each row's block
    return bool(np.array_equal(on, on[leaders]))


def filter_bank(sample: Sample, kinds: frozenset[str]) -> str | None:
    """Whether the rows, or the columns, are bumps that move along a frequency axis, as on the mel scale."""
    values = sample.values
    if values.ndim != 2 or not np.isfinite(values).all() or values.min() < 0 or np.mean(values == 0) < 0.5:
        return None
    return TRANSFORM if _are_bumps(values) or _are_bumps(values.T) else None


def _are_bumps(rows: Values) -> bool:
    """Whether each row rises and falls once, each no earlier than the one before, in several widths."""
    rows = rows[rows.any(axis=1)]
    if len(rows) < _FILTERS:
        return False
    on = rows > 0
    widths = on.sum(axis=1)
    begins, peaks = on.argmax(axis=1), rows.argmax(axis=1)
    ends = rows.shape[1] - on[:, ::-1].argmax(axis=1)
    steps = np.diff(rows, axis=1)
    places = np.arange(steps.shape[1])
    single = np.where(places < peaks[:, None], steps >= 0, steps <= 0).all()
    moving = (np.diff(begins) >= 0).all() and (np.diff(ends) >= 0).all() and begins[0] < begins[-1]
    return bool(single and moving and (widths == ends - begins).all() and np.unique(widths).size >= _WIDTHS)
