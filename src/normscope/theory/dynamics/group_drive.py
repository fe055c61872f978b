"""What drives the norm of one parameter group: an aligned part ∝ η and a diffusive part ∝ η².

With u = ‖v‖ the size of the optimizer's direction v and cos its alignment with θ, exactly

    Δ(ρ²) = −(2ηλ − η²λ²)·ρ² + 2(1 − ηλ)·η·ρ·u·cos + η²·u²

With momentum β, θ contains the gradients that are still in v. For independent gradients that adds 2⟨θ, v⟩ =
(m − 1)·η·u² to the middle term, m = (1 + β)/(1 − β): it is ∝ η², like the last one. So the growth that decay
does not explain is measured as a whole, between records, and then split:

    Δ(ρ²) + decay = η·a + η²·d          d = κ·m·u² (u from the one-step sums), a the rest

κ = 1 for independent gradients. In trained networks the loss pulls back what the last steps did, and less
of the drive falls with η²: κ = 0.4 predicted best when the rate changed (docs/laws.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from normscope.theory.dynamics.dynamics import Steps, steps_between
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.laws.laws import Array

USUAL_MOMENTUM = 0.9  # of Adam and SGD, where the momentum is not known
PULLED_BACK = 0.4  # κ
UNKNOWN_SHARE = 0.5  # of the drive that is diffusive at the present rate, where u is not known
MOST_OPPOSED = 2.0  # the diffusive part is at most this many times the whole, which an aligned one opposes
RECENT = 0.2  # the share of the steps that the level of the drive is measured on
FEWEST = 4  # intervals that a level needs
TREND_SINCE = 0.4  # the trend of the drive is measured from this share of the steps on
TREND_PARTS = 4
SLOPE_VARIANCE = 0.1  # of d log(drive)/d log(step) between trainings: how far a noisy slope is believed
STEEPEST = 1.0
LEAST_ERROR = 0.02  # no drive is known better, as the standard deviation of its logarithm


@dataclass(frozen=True)
class GroupDrive:
    """The drive of one group: ρ² gains η·`aligned` + η²·`diffusive` in a step, besides weight decay.

    `slope` is how its logarithm changes with the logarithm of the step, around step `middle`; a forecast
    continues that with less and less weight (`factor`). `error` is the standard deviation of its logarithm.
    """

    aligned: float
    diffusive: float
    middle: float
    slope: float = 0.0
    error: float = 0.5

    def growth(self, steps: Steps) -> Array:
        """What each interval adds to ρ², at the level of step `middle`."""
        gained: Array = self.aligned * steps.first + self.diffusive * steps.second
        return gained

    def factor(self, steps: Array) -> Array:
        """The drive at later steps relative to step `middle`: its trend, which fades out over e-fold time."""
        ahead = np.maximum(np.log(np.maximum(steps, 1.0) / max(self.middle, 1.0)), 0.0)
        factor: Array = np.exp(self.slope * -np.expm1(-ahead))
        return factor


def memory(group: RateGroup, taken: float = 0.0) -> float:
    """m = (1 + β)/(1 − β): how many independent updates one counts for, by the momentum of the group.

    Decay that takes a share `taken` of θ per step also takes it of what past gradients left in θ: β(1 − ηλ).
    """
    beta = USUAL_MOMENTUM if group.momentum is None else min(group.momentum, 0.999)
    beta *= 1 - taken
    return (1 + beta) / (1 - beta)


def acting_rates(group: RateGroup, rates: Rates) -> Rates:
    """Rates whose product is the share that decay takes per step; without decay where that is unknown."""
    factor = group.decay_factor
    return Rates(rates.steps, rates.lr, rates.weight_decay * (0.0 if factor is None else factor))


def group_drive(group: RateGroup) -> GroupDrive | None:
    """The drive over the latest steps of a group, and its trend; None if nothing moved it."""
    if len(group.steps) < 2:
        return None
    steps = steps_between(group.steps, acting_rates(group, group.rates))
    gained = group.sumsq[1:] - steps.kept * group.sumsq[:-1]
    recent = _recent(group.steps, steps)
    if not steps.first[recent].sum() > 0:
        return None
    level = _level(group, steps, gained, recent)
    return _with_trend(level, group.steps, steps, gained)


def _recent(edges: Array, steps: Steps) -> slice:
    """The latest intervals: a fifth of the steps, with a hundredth of all that the optimizer did or more."""
    done = np.cumsum(steps.first)
    by_time = int(np.searchsorted(edges[1:], (1 - RECENT) * edges[-1], side="right"))
    by_rate = int(np.searchsorted(done, 0.99 * done[-1]))
    return slice(max(min(by_time, by_rate, len(done) - FEWEST), 0), None)


def _level(group: RateGroup, steps: Steps, gained: Array, recent: slice) -> GroupDrive:
    total, first, second = (float(x[recent].sum()) for x in (gained, steps.first, steps.second))
    size = update_size(group, recent)
    if size is None:
        diffusive = UNKNOWN_SHARE * max(total, 0.0) / second
    else:
        diffusive = min(PULLED_BACK * memory(group) * size, MOST_OPPOSED * abs(total) / second)
    edges = group.steps[1:][recent]
    middle = (float(group.steps[:-1][recent][0]) + float(edges[-1])) / 2
    return GroupDrive((total - diffusive * second) / first, diffusive, middle)


def update_size(group: RateGroup, recent: slice = slice(None)) -> float | None:
    """Mean u² = ‖Δ + ηλθ′‖²/η² over the one-step pairs of these intervals; None without any."""
    if group.dot is None or group.sumsq_delta is None or group.previous is None:
        return None
    rows = slice(1, None)
    dot, delta, after = (x[rows][recent] for x in (group.dot, group.sumsq_delta, group.sumsq))
    ends, before = group.steps[rows][recent], group.previous[rows][recent]
    lr, decay = acting_rates(group, group.rates).at(ends)
    known = np.isfinite(dot) & np.isfinite(delta) & (ends - before == 1) & (lr > 0)
    if not known.any():
        return None
    dot, delta, after, lr, taken = (x[known] for x in (dot, delta, after, lr, lr * decay))
    start = np.maximum(after - 2 * dot - delta, 0.0)
    squares = np.maximum(delta + 2 * taken * dot + taken**2 * start, 0.0)
    return float(squares.sum() / (lr**2).sum())


def _with_trend(level: GroupDrive, edges: Array, steps: Steps, gained: Array) -> GroupDrive:
    """Add the slope of log(drive) over log(step), shrunk by its uncertainty, and the scatter around it."""
    times, logs = _parts(level, edges, steps, gained)
    if len(times) < 3:
        return level
    x = times - times.mean()
    slope = float((x * logs).sum() / (x**2).sum())
    scatter = float(((logs - logs.mean() - slope * x) ** 2).sum()) / (len(x) - 2)
    believed = SLOPE_VARIANCE / (SLOPE_VARIANCE + scatter / float((x**2).sum()))
    slope = believed * float(np.clip(slope, -STEEPEST, STEEPEST))
    error = max(float(np.sqrt(scatter)), LEAST_ERROR)
    return GroupDrive(level.aligned, level.diffusive, level.middle, slope, error)


def _parts(level: GroupDrive, edges: Array, steps: Steps, gained: Array) -> tuple[Array, Array]:
    """log(step) and log(drive over its level) of a few parts of the later run, equally long in log(step)."""
    expected, ends = level.growth(steps), edges[1:]
    if edges[-1] <= 0 or not expected[-FEWEST:].sum() > 0:
        return np.zeros(0), np.zeros(0)
    cuts = edges[-1] * np.geomspace(TREND_SINCE, 1.0, TREND_PARTS + 1)
    times, logs = [], []
    for low, high in pairwise(cuts):
        part = (ends > low) & (ends <= high * (1 + 1e-12))
        if expected[part].sum() > 0:
            times.append(np.log(ends[part].mean()))
            logs.append(np.log(max(float(gained[part].sum() / expected[part].sum()), 0.2)))
    return np.array(times), np.array(logs)
