"""Tables of sines and cosines, recognised by two identities that trained values do not keep.

A pair of columns (sine, cosine) of one angle lies on a circle in every row, however the columns are
ordered: neighbours, halves, or quarters. And a single column x of angles m·ω satisfies
x(m+1) + x(m−1) = 2·cos(ω)·x(m), which serves tables that contain only sines or only cosines.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from normscope.weights.inventory.peeks import Sample, Values

SINUSOIDS, ANGLES = "sinusoidal table", "table of angles"
_FEWEST_ROWS, _FEWEST_PAIRS = 4, 2
_FINE = 5e-3  # relative tolerance up to which a circle around another point than 0 is looked for
_ROWS = 4096  # rows that are looked at


def position_table(sample: Sample, kinds: frozenset[str]) -> str | None:
    """Whether the values are a table of sines and cosines, or of the angles m·ω themselves."""
    if sample.values.ndim < 2 or sample.values.size < 16 or not np.isfinite(sample.values).all():
        return None
    if _rotations(sample.values, sample.tolerance):
        return SINUSOIDS
    for table in _matrices(_without_repeats_along(sample.values)):
        if _on_circles(table, sample.tolerance) or _single_function(table, sample):
            return SINUSOIDS
        if _angles(table, sample.tolerance) or _angles_of_grid(table, sample):
            return ANGLES
    return SINUSOIDS if "table" in kinds and _bounded(sample.values) and _grid(sample) else None


def unit_circle(cosines: Sample, sines: Sample) -> bool:
    """Whether two tensors of one shape are the cosines and the sines of the same angles."""
    one, other = cosines.values, sines.values
    if one.shape != other.shape or one.size < 4 or not _varied(one):
        return False
    return _one_number(one**2 + other**2, cosines.tolerance)


def _matrices(values: Values) -> Iterator[Values]:
    """Views [positions, columns]: as stored, with real and imaginary parts last, and transposed."""
    if values.ndim >= 3 and values.shape[-1] == 2:
        yield values.reshape(-1, values.shape[-2] * 2)[:_ROWS]
    yield values.reshape(-1, values.shape[-1])[:_ROWS]
    yield values.reshape(values.shape[0], -1).T[:_ROWS]
    if values.ndim == 3:
        yield values.transpose(1, 0, 2).reshape(values.shape[1], -1)[:_ROWS]


def _without_repeats_along(values: Values) -> Values:
    """The values without axes along which a table was only repeated, down to a matrix."""
    for axis in reversed(range(values.ndim)):
        first = np.take(values, [0], axis)
        if values.ndim > 2 and np.array_equal(np.broadcast_to(first, values.shape), values):
            values = first.squeeze(axis)
    return values


def _rotations(values: Values, tolerance: float) -> bool:
    """Whether each matrix of a stack is a rotation, the first one by the angle 0."""
    if values.ndim != 3 or values.shape[1] != values.shape[2] or len(values) < _FEWEST_ROWS:
        return False
    unit = np.eye(values.shape[1])
    few = values[:16]
    return (
        np.array_equal(values[0], unit)
        and _varied(values)
        and bool(np.all(np.abs(few @ few.transpose(0, 2, 1) - unit) <= 4 * tolerance))
    )


def _varied(values: Values) -> bool:
    """Whether enough values are neither near 0 nor near the largest: more than signs and constants."""
    size = np.abs(values)
    top = size.max()
    return bool(top > 0 and np.mean((size > 0.02 * top) & (size < 0.98 * top)) > 0.05)


def _on_circles(table: Values, tolerance: float) -> bool:
    """Whether the columns form pairs with x² + y² constant: the same in all rows and all pairs."""
    table = table[np.any(table != 0, axis=1)]  # a class token or a padding token has a row of zeros
    if table.shape[0] < _FEWEST_ROWS or table.shape[1] < 2 * _FEWEST_PAIRS or not _varied(table):
        return False
    return any(_circle(*pair, tolerance) for pair in _pairings(table, table.shape[1] // 2 * 2))


@np.errstate(over="ignore", invalid="ignore")
def _circle(x: Values, y: Values, tolerance: float) -> bool:
    """Whether (x − μ)² + (y − μ)² is one number; μ is 0 unless someone has normalised the table."""
    squares = x**2 + y**2
    if _one_number(squares, tolerance):
        return True
    if tolerance > _FINE:
        return False
    sums = x + y - (x + y).mean()
    length = float(np.sum(sums**2))
    slope = float(np.sum(sums * squares)) / length if length > 0 else 0.0
    return _one_number(squares - slope * (x + y) + slope**2 / 2, tolerance)


def _one_number(values: Values, tolerance: float) -> bool:
    """Whether all values are one positive number: as near to their middle as rounding allows."""
    low, high = float(values.min()), float(values.max())
    return low > 0 and high - low <= tolerance * (high + low)


def _pairings(table: Values, even: int) -> Iterator[tuple[Values, Values]]:
    """The two columns of each pair, for each order in which tables are written."""
    if even % 4 == 0:
        quarters = table[:, :even].reshape(len(table), 2, 2, even // 4)
        yield quarters[:, :, 0].reshape(len(table), -1), quarters[:, :, 1].reshape(len(table), -1)
    yield table[:, : even // 2], table[:, even // 2 : even]
    yield table[:, 0:even:2], table[:, 1:even:2]


def _single_function(table: Values, sample: Sample) -> bool:
    """Whether all columns are sines, or all are cosines, of m·ω with m counted from 0.

    Of a table that is known to be constant, the first row may be any: positions count from 1.
    """
    if table.shape[0] < 2 * _FEWEST_ROWS or table.shape[1] < 2 or not _varied(table):
        return False
    top = float(np.abs(table).max())
    cosines = bool(np.all(np.abs(table[0] - top) <= 8 * sample.rounding * top))
    sines = not table[0].any()
    return (cosines or sines or sample.settled) and _recurs(table / top, sample)


def _recurs(table: Values, sample: Sample) -> bool:
    """Whether x(m+1) + x(m−1) = k·x(m) with one |k| ≤ 2 per column; the error may grow with the angle.

    A column with k = 2 is a straight line, not a wave: they cannot all be that.
    """
    tolerance = sample.tolerance
    middle, sums = table[1:-1], table[2:] + table[:-2]
    lengths = np.sum(middle**2, axis=0)
    turn = np.where(lengths > 0, np.sum(sums * middle, axis=0) / np.where(lengths > 0, lengths, 1), 2)
    angles = np.arccos(np.clip(turn / 2, -1, 1)) * np.arange(1, len(table) - 1)[:, None]
    near = np.abs(sums - turn * middle) <= 2 * tolerance + 1e-6 * angles
    waves = bool((turn < 2 - max(1e-4, 2 * sample.rounding)).any())
    return waves and bool(near.all() and np.all(np.abs(turn) <= 2 + 2 * tolerance))


def _angles(table: Values, tolerance: float) -> bool:
    """Whether row m is m times row 1, which decreases: the angles m·ω of rotary embeddings.

    It begins with 1, or with less if the positions are interpolated.
    """
    if table.shape[0] < _FEWEST_ROWS or table.shape[1] < 2 or table[0].any():
        return False
    few = min(table.shape[0], 2 * table.shape[1]) < 2 * _FEWEST_ROWS
    if not np.isclose(table[1, 0], 1) and (few or table[1, -1] > table[1, 0] / 2):
        return False
    steps = np.arange(len(table))[:, None]
    halves = table[1, : table.shape[1] // 2]
    falling = all((part[1:] < part[:-1]).all() for part in (halves, table[1, len(halves) :]))
    paired = bool(np.all(table[1, 1:] <= table[1, :-1]))
    positive = bool((table[1] > 0).all()) and (falling or paired)
    return positive and bool(np.all(np.abs(table - steps * table[1]) <= tolerance * np.maximum(1, steps)))


def _angles_of_grid(table: Values, sample: Sample) -> bool:
    """Whether each column is a frequency of its own times integers from 0 on: positions on a grid.

    Weights of few levels are negative, too; and integers are multiples of 1 whatever they mean.
    """
    if min(table.shape) < _FEWEST_ROWS or table.min() < 0 or table.min(axis=0).any():
        return False
    units = np.where(table > 0, table, np.inf).min(axis=0)
    if not np.isfinite(units).all() or np.unique(units).size < _FEWEST_ROWS or (units % 1 == 0).mean() > 0.5:
        return False
    multiples = table / units
    whole = np.rint(multiples)
    near = np.abs(multiples - whole) <= 4 * sample.rounding * np.maximum(1, whole)
    return bool(near.all() and np.all(whole.max(axis=0) >= _FEWEST_ROWS - 1))


def _bounded(values: Values) -> bool:
    return bool(np.abs(values).max() <= 1 + 1e-6) and _varied(values)


def _grid(sample: Sample) -> bool:
    """Whether a table named as one is all cosines or sines of a grid of positions: the first row says so."""
    first = sample.values.reshape(-1, sample.values.shape[-1])[0]
    return sample.settled and bool(np.all(np.abs(first - 1) <= 8 * sample.rounding) or not first.any())
