"""Vectors and grids that follow a formula: positions, frequencies, ALiBi slopes, schedules, windows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from normscope.checkpoints.buffer_names import DECAYS, INDICES, PIXELS, SCHEDULE
from normscope.weights.inventory.peeks import Sample, Values

FREQUENCIES, SLOPES, ALIBI = "frequencies", "ALiBi slopes", "ALiBi bias"
EVEN = "evenly spaced points"
_FEWEST = 4  # numbers: fewer may follow a formula by accident
_LONG, _SMOOTH = 10, 50  # of a schedule, which only has to be monotonic; or smooth, in a single checkpoint
_FAR = 50  # times the rounding: how far apart the ends of a series must be
_COUNTED = 8  # of 0, 1, 2, …, which also stand for weights in small examples
_MASKED = (-np.inf, -9000.0)  # up to which values are a mask that was added to a bias
_FIRST_FREQUENCIES = np.array([1, np.pi, 2 * np.pi])
_PIXELS = (  # means and spreads: ImageNet's, CLIP's, those of LPIPS, CIFAR-10's (two versions), CIFAR-100's
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
    (0.4815, 0.4578, 0.4082),
    (0.2686, 0.2613, 0.2758),
    (-0.030, -0.088, -0.188),
    (0.458, 0.448, 0.450),
    (0.4914, 0.4822, 0.4465),
    (0.2023, 0.1994, 0.2010),
    (0.2470, 0.2435, 0.2616),
    (0.5071, 0.4867, 0.4408),
    (0.2675, 0.2565, 0.2761),
)


def number_series(sample: Sample, kinds: frozenset[str]) -> str | None:
    """Whether the values follow a formula; `kinds` is what the name says (`suspected`)."""
    values = sample.values
    if values.ndim == 0 or values.size < 2:
        return None
    if "image" in kinds and _pixels(values):
        return PIXELS
    if not np.isfinite(values).all():
        return ALIBI if values.ndim >= 2 and _alibi_bias(values, sample.tolerance) else None
    if values.ndim > 1:
        return _of_grid(sample, kinds)
    return _of_vector(sample, kinds)


def _of_vector(sample: Sample, kinds: frozenset[str]) -> str | None:
    values, tolerance = sample.values, sample.tolerance
    if _alibi(values, tolerance) or ("slopes" in kinds and _geometric(values, tolerance)):
        return SLOPES
    if _retention(values, tolerance):
        return DECAYS
    if values.size < _FEWEST:
        return None
    if _xpos(values, tolerance):
        return "scales of xPos"
    if _counts(values, sample.rounding) or ("indices" in kinds and _integers(values)):
        return INDICES
    if "grid" in kinds and values.size >= _COUNTED and _even(values, tolerance):
        return EVEN
    values = _without_repeats(values)
    unit = bool(np.any(np.abs(values[0] / _FIRST_FREQUENCIES - 1) <= sample.rounding))
    if (unit or "frequencies" in kinds) and _geometric(values, tolerance):
        return FREQUENCIES
    if "frequencies" in kinds and unit and bool((values > 0).all() and (values[1:] < values[:-1]).all()):
        return FREQUENCIES
    if "schedule" in kinds and _is_schedule(values, sample):
        return SCHEDULE
    return "a window of a signal transform" if "window" in kinds and _window(values) else None


def _of_grid(sample: Sample, kinds: frozenset[str]) -> str | None:
    values = sample.values
    if "indices" in kinds and _integers(values):
        return INDICES
    if "queue" in kinds and _unit_vectors(values):
        return "a queue of examples"
    if "identity" in kinds and _identity(values):
        return "an identity matrix"
    if _alibi_bias(values, sample.tolerance):
        return ALIBI
    if _decay_mask(values, sample.tolerance) or _powers(sample):
        return DECAYS
    if "grid" in kinds and values.shape[-1] >= _COUNTED and (values == values[:1]).all():
        return EVEN if _even(values.reshape(-1, values.shape[-1])[0], sample.tolerance) else None
    return INDICES if _rising_grid(values, sample.rounding) or _toeplitz(values) else None


def _counts(values: Values, rounding: float) -> bool:
    """0, 1, 2, … or 1, 2, 3, …, as far as the dtype can tell them apart."""
    wanted = values[0] + np.arange(values.size)
    return (
        values.size >= _COUNTED
        and float(values[0]) in (0.0, 1.0)
        and bool(np.all(np.abs(values - wanted) <= rounding * wanted))
    )


def _integers(values: Values) -> bool:
    """Several different integers that are not only 0 and 1."""
    return bool(np.all(values == np.round(values)) and values.max() >= 2 and values.min() < values.max())


def _rising_grid(values: Values, rounding: float) -> bool:
    """Positions j, differences ±(i − j) or distances ±|i − j|, of rows i and columns j.

    A parameter may be initialised with equal rows of 1, 2, 3, …, as in Mamba, but not of 0, 1, 2, ….
    """
    rows = values.reshape(-1, values.shape[-1])
    if rows.shape[0] < 2 or rows.shape[1] < _COUNTED:
        return False
    distance = np.abs(np.arange(len(rows))[:, None] - np.arange(rows.shape[1]))
    if np.array_equal(np.abs(rows), distance) and (rows.min() >= 0 or rows.max() <= 0):
        return True
    down, across = rows[1, 0] - rows[0, 0], rows[0, 1] - rows[0, 0]
    i, j = np.arange(rows.shape[0])[:, None], np.arange(rows.shape[1])
    wanted = rows[0, 0] + down * i + across * j
    whole = abs(across) == 1 and rows[0, 0] == round(rows[0, 0])
    varies = down == -across or (down == 0 and rows[0, 0] == 0 and across == 1)
    return whole and varies and bool(np.all(np.abs(rows - wanted) <= rounding * np.abs(wanted)))


def _toeplitz(values: Values) -> bool:
    """Integers, several of them, that depend only on i − j: clipped or bucketed relative positions."""
    matrix = values.reshape(-1, *values.shape[-2:])[0]
    if values.ndim > 3 or min(matrix.shape) < _COUNTED or np.unique(matrix[0]).size < _FEWEST:
        return False
    return (
        _integers(matrix)
        and np.array_equal(matrix[1:, 1:], matrix[:-1, :-1])
        and bool((values == matrix).all())
    )


def _geometric(values: Values, tolerance: float) -> bool:
    """Each number is the same multiple of the one before, and the last is far from the first.

    Gains near 1 in a short dtype are as good as geometric, too.
    """
    if values.size < 3 or not ((values > 0).all() or (values < 0).all()):
        return False
    logs = np.log(np.abs(values))
    if abs(logs[-1] - logs[0]) < _FAR * tolerance:
        return False
    return _straight(logs, tolerance)


def _straight(logs: Values, tolerance: float) -> bool:
    """Whether the numbers rise or fall in equal steps."""
    steps = np.diff(logs)
    return bool(
        abs(steps[0]) > 1e-4 and np.all(np.abs(steps - steps.mean()) <= tolerance * max(1, abs(steps[0])))
    )


def _even(values: Values, tolerance: float) -> bool:
    """Points at equal distances, the last far from the first."""
    if abs(values[-1] - values[0]) < _FAR * tolerance * np.abs(values).max():
        return False
    wanted = np.linspace(values[0], values[-1], values.size)
    return bool(values[0] != values[-1] and np.abs(values - wanted).max() <= tolerance * np.abs(wanted).max())


def _without_repeats(values: Values) -> Values:
    """Half of the values, if each is there twice: as neighbours, or in two halves."""
    half = values.size // 2
    if values.size % 2 == 0 and half >= _FEWEST:
        if np.array_equal(values[0::2], values[1::2]):
            return values[0::2]
        if np.array_equal(values[:half], values[half:]):
            return values[:half]
    return values


def alibi_slopes(heads: int) -> Values:
    """The slopes of ALiBi: powers of 2^(−8/n); between powers of two, every other of the next one's."""
    whole = 1 << (heads.bit_length() - 1)
    slopes: Values = np.exp2(-8.0 / whole * np.arange(1, whole + 1))
    if whole == heads:
        return slopes
    more: Values = np.exp2(-8.0 / (2 * whole) * np.arange(1, 2 * whole + 1))[0::2]
    return np.concatenate([slopes, more[: heads - whole]])


def _alibi(values: Values, tolerance: float) -> bool:
    return np.allclose(np.abs(values), alibi_slopes(values.size), rtol=tolerance, atol=0)


def _alibi_bias(values: Values, tolerance: float) -> bool:
    """One row or matrix of integers per head, times the head's slope; −∞ where a mask is added."""
    heads, rest = values.shape[0], values.reshape(values.shape[0], -1)
    if heads < 2 or rest.shape[1] < _FEWEST:
        return False
    slopes = alibi_slopes(heads)[:, None]
    return any(_whole_multiples(rest, slopes, rest > masked, tolerance) for masked in _MASKED)


@np.errstate(over="ignore", invalid="ignore")  # −∞ and the largest floats are not known
def _whole_multiples(rest: Values, slopes: Values, known: NDArray[np.bool_], tolerance: float) -> bool:
    """Whether each row is its slope times the same integers, where they are known."""
    scaled = rest / slopes
    known = known & np.isfinite(scaled) & (np.abs(scaled) < 1e6)
    whole = np.round(scaled := np.where(known.all(axis=0), scaled, 0))
    near = np.abs(scaled - whole) <= 4 * tolerance * np.maximum(1, np.abs(whole))
    varied = int(np.ptp(whole)) >= min(_FEWEST, rest.shape[1]) - 1
    return varied and bool(near.all() and np.all(whole == whole[0]))


def _retention(values: Values, tolerance: float) -> bool:
    """The decays of retention, or their logarithms: 1 − 2^(−5−i), or as many between 1/32 and 1/512."""
    gaps = 1 - (np.exp(values) if (values < 0).all() else values)
    first = np.abs(gaps[0] - 1 / 32) <= 1e-3 / 32 and (gaps > 0).all()
    second = values.size > 2 or np.abs(gaps[1] - 1 / 64) <= 1e-3 / 64
    return bool(first and second) and (values.size == 2 or _straight(np.log(gaps), 20 * tolerance))


def _xpos(values: Values, tolerance: float) -> bool:
    count = values.size
    wanted = (np.arange(count) + 0.4 * count) / (1.4 * count)
    return bool(np.all(np.abs(values - wanted) <= tolerance))


def _decay_mask(values: Values, tolerance: float) -> bool:
    """Matrices of γ^(i−j), zero above the diagonal."""
    size = values.shape[-1]
    if size < _COUNTED or values.shape[-2] != size:
        return False
    matrices = values.reshape(-1, size, size)[:16, :512, :512]
    if np.triu(matrices, 1).any() or not (matrices[:, 0, 0] == 1).all():
        return False
    bases = matrices[:, 1, 0][:, None, None]
    distance = np.maximum(0, np.arange(matrices.shape[1])[:, None] - np.arange(matrices.shape[2]))
    wanted = np.tril(bases**distance)
    falling = bool(((bases > 0) & (bases < 1)).all())
    return falling and bool(np.all(np.abs(matrices - wanted) <= (distance + 1) * tolerance * wanted))


def _powers(sample: Sample) -> bool:
    """Columns that are geometric sequences with different factors, as in the table of xPos."""
    table = sample.values.reshape(sample.values.shape[0], -1)[:4096]
    if table.shape[0] < _COUNTED or table.shape[1] < 2 or not (table > 0).all():
        return False
    logs = np.log(table)
    span, bend = np.abs(logs[-1] - logs[0]), np.abs(np.diff(logs, 2, axis=0)).max(axis=0)
    clear = span > 40 * max(8 * sample.rounding, 1e-6)
    return bool(
        clear.mean() > 0.5 and np.ptp(span) > 0.1 * span.max() and (bend <= 8 * sample.rounding).all()
    )


def is_smooth(sample: Sample) -> bool:
    """Whether a long vector bends little, as the schedules of diffusion models do."""
    values = sample.values
    if values.ndim != 1 or values.size < _SMOOTH or not np.isfinite(values).all():
        return False
    bends, steps = np.abs(np.diff(values, 2)), np.abs(np.diff(values))
    rounded = 4 * sample.rounding * np.abs(values).max()
    return bool(steps.any() and np.quantile(bends, 0.9) <= 0.1 * steps.max() + rounded)


def _is_schedule(values: Values, sample: Sample) -> bool:
    """Monotonic; before two checkpoints have shown that it never changes, also long and smooth.

    Parameters are initialised with evenly spaced values too; a little training makes them uneven.
    """
    if values.size < (_LONG if sample.settled else _SMOOTH) or not _monotonic(values):
        return False
    return sample.settled or is_smooth(sample)


def _monotonic(values: Values) -> bool:
    steps = np.diff(values)
    kept = (steps >= 0).all() or (steps <= 0).all()
    changes = np.count_nonzero(steps)  # few, if numbers near 1 were rounded to a short dtype
    return bool(kept and changes >= (_LONG - 1 if values.size < 100 else 3))


def _window(values: Values) -> bool:
    """A smooth bump in [0, 1], the same from both ends."""
    return bool(values.min() >= 0 and values.max() <= 1 + 1e-6 and values.size >= 16) and any(
        np.allclose(part, part[::-1], atol=1e-5) and part.std() > 0.1 for part in (values, values[1:])
    )


def _unit_vectors(values: Values) -> bool:
    lengths = [np.sqrt(np.sum(values**2, axis=axis)) for axis in range(values.ndim)]
    return not values.any() or any(np.allclose(length, 1, atol=1e-2) for length in lengths)


def _identity(values: Values) -> bool:
    return values.ndim == 2 and np.array_equal(values, np.eye(len(values)))


def _pixels(values: Values) -> bool:
    if values.size != 3 or not np.isfinite(values).all():
        return False
    return any(np.allclose(values.reshape(-1) / s, known, atol=1e-3) for known in _PIXELS for s in (1, 255))
