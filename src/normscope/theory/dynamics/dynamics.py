"""The norm recursion, and the equilibrium it leads to.

An optimizer with decoupled weight decay λ moves θ ← (1 − ηλ)·θ + η·g, so that exactly

    ρ²_{t+1} = (1 − ηλ)²·ρ²_t + 2(1 − ηλ)·η·a_t + η²·u_t²          a = ⟨θ, g⟩, u = ‖g‖

The growth that decay does not explain is the *drive*: D_t = (2(1 − ηλ)·a_t/η + u_t²), growth of ρ² per step
in units of η². If updates are misaligned (a ≈ 0), the drive is the squared size of the optimizer's direction.
With momentum, successive updates are alike, a is positive, and the drive is larger than u².
A constant drive gives (Merrill et al. 2021, section 3, with decoupled decay added)

    ρ²_t → ρ*² = η·D/(2λ − ηλ²),   approached as (1 − ηλ)^(2t),   turning by √(2ηλ)·√n in n steps there.

With momentum β and gradients that are independent from step to step, D = u²·(1 + β)/(1 − β): 19 times the
squared size of one update for Adam's β₁ = 0.9, which is what small transformers show (docs/laws.md). The
drive of a run follows from its norms alone, given η and λ: no gradient has to be recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.errors import SeriesError
from normscope.theory.dynamics.learning_rates import SEGMENTS, Rates
from normscope.theory.laws.laws import Array

_UNKNOWN_SCALING = 1 / 3
_SETTLED = 0.01  # relative distance of ρ² from its equilibrium that counts as settled


@dataclass(frozen=True, eq=False)
class Drive:
    """The drive over the intervals of a series: `values[i]` applies from `steps[i]` to `steps[i + 1]`.

    `weights` says how much each interval's growth depends on its drive: Σ η², less what decays later.
    """

    steps: Array
    values: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class Steps:
    """What the updates of each interval do: ρ²_end = kept·ρ²_start + first·a + second·d.

    `first` is Σ η and `second` is Σ η² over the updates of the interval, each less what decays after it.
    """

    kept: Array
    first: Array
    second: Array


def steps_between(edges: Array, rates: Rates) -> Steps:
    """The coefficients of ρ² ← (1 − ηλ)²·ρ² + η·a + η²·d over every interval between increasing `edges`.

    An interval is divided into pieces, at most SEGMENTS in all, with constant rates in each and a sum in
    closed form: exact for constant rates, the midpoint rule for a schedule.
    """
    count = len(edges) - 1
    pieces = np.clip(np.diff(edges), 1, max(SEGMENTS // max(count, 1), 8)).astype(int)
    interval = np.repeat(np.arange(count), pieces)
    ends = np.cumsum(pieces)
    number = np.arange(len(interval)) - (ends - pieces)[interval]
    length = (np.diff(edges) / pieces)[interval]
    # the update that leads to step t uses the rate just before step t
    eta, decay = rates.at(edges[:-1][interval] + (number + 0.5) * length)
    log = 2 * np.log(np.maximum(1.0 - eta * decay, 1e-12))
    lost = np.cumsum(log * length)
    later = np.exp(lost[ends - 1][interval] - lost) if count else lost
    rate = -np.expm1(log)
    inside = np.where(rate > 1e-12, -np.expm1(log * length) / np.where(rate > 1e-12, rate, 1.0), length)
    parts = log * length, eta * inside * later, eta**2 * inside * later
    lost, first, second = (np.bincount(interval, part, count).astype(np.float64) for part in parts)
    return Steps(np.exp(lost), first, second)


def transitions(edges: Array, rates: Rates) -> tuple[Array, Array]:
    """(A, S) with ρ²_end = A·ρ²_start + S·D, for every interval between increasing `edges`."""
    found = steps_between(edges, rates)
    return found.kept, found.second


def drive(steps: Array, sumsq: Array, rates: Rates) -> Drive:
    """The drive of each interval that turns ρ² at its start into ρ² at its end."""
    if len(steps) < 2:
        raise SeriesError(f"the drive of a run follows from its norm at two steps or more, got {len(steps)}")
    kept, gained = transitions(steps, rates)
    if not (gained > 0).any():
        raise SeriesError("the learning rate is zero over the whole run: nothing drives the norm")
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(gained > 0, (sumsq[1:] - kept * sumsq[:-1]) / gained, np.nan)
    return Drive(steps, values, gained)


def recurse(start: float, sumsq: float, steps: Array, rates: Rates, drive: float) -> Array:
    """ρ² at increasing `steps` ≥ start under a constant drive."""
    kept, gained = transitions(np.concatenate([[start], steps]), rates)
    out = np.empty(len(steps))
    for i, (a, s) in enumerate(zip(kept, gained, strict=True)):
        sumsq = max(a * sumsq + s * drive, 0.0)
        out[i] = sumsq
    return out


@dataclass(frozen=True)
class DriveEstimate:
    """The drive to expect: the mean over the later half of a run, and its uncertainty.

    `error` is the standard deviation of its logarithm between parts of that half. `drift` is how much its
    logarithm changed over the last doubling of the steps, and may change, either way, over the next.
    `jitter` is the variance of single intervals times their length, which averages out over many steps.
    """

    value: float
    error: float
    drift: float
    jitter: float = 0.0

    def spread(self, now: float, ahead: Array, changed: Array | float = 0.0) -> Array:
        """Standard deviation of the logarithm of the mean drive from step `now` to the steps `ahead`.

        `changed` is |log| of the learning rate ahead over the one at which the drive was measured. The
        drive of misaligned updates does not depend on η, that of aligned ones is ∝ 1/η; in between,
        a third of the change is taken as the standard deviation.
        """
        moved = self.drift * np.log2(np.maximum(ahead / max(now, 1.0), 1.0))
        scaled = np.abs(changed) * _UNKNOWN_SCALING
        jitter = self.jitter / np.maximum(ahead - now, 1.0)
        spread: Array = np.sqrt(self.error**2 + moved**2 + scaled**2 + jitter)
        return spread


def expected_drive(found: Drive) -> DriveEstimate:
    """The drive of the later half, with the scatter between its four parts as that of the future."""
    known = np.isfinite(found.values) & (found.weights > 0)
    ends, values, weights = found.steps[1:][known], found.values[known], found.weights[known]
    late = ends > ends[-1] / 2 if (ends > ends[-1] / 2).sum() >= 2 else np.ones(len(ends), dtype=bool)
    value = _mean(values[late], weights[late])
    if value <= 0:
        return DriveEstimate(value, 0.0, 0.0)
    parts = np.array_split(np.flatnonzero(late), min(4, int(late.sum())))
    means = np.array([_mean(values[part], weights[part]) for part in parts])
    scatter = float(np.std(means, ddof=1) / value) if len(means) > 1 else 0.5
    error = scatter * np.sqrt(1 + 1 / len(means))
    lengths = np.diff(found.steps)[known][late]
    jitter = float(np.var(values[late]) * lengths.mean()) / value**2
    return DriveEstimate(value, error, _drift(ends, values, weights, value), jitter)


def _mean(values: Array, weights: Array) -> float:
    return float((values * weights).sum() / weights.sum())


def _drift(ends: Array, values: Array, weights: Array, late_value: float) -> float:
    """|log| of the mean drive over the last half of the steps relative to the quarter before it."""
    early = (ends > ends[-1] / 4) & (ends <= ends[-1] / 2)
    before = _mean(values[early], weights[early]) if early.any() else 0.0
    return float(abs(np.log(late_value / before))) if before > 0 else 0.5


@dataclass(frozen=True)
class Equilibrium:
    """The norm at which growth and decay balance under constant rates, with a 95 % interval.

    `steps` is how many more steps bring ρ² within 1 % of it, `half_life` how many halve the distance.
    `angular_update` is the rate of rotation there: after n steps the direction has turned by about
    `angular_update`·√n radians, √(2ηλ) for small ηλ. `exists` is False without weight decay, without
    learning rate, or with a drive that is not positive.

    >>> from normscope.theory.dynamics.dynamics import DriveEstimate, equilibrium
    >>> rest = equilibrium(DriveEstimate(5e4, 0.0, 0.0), sumsq=20.0, lr=2e-3, weight_decay=0.1)
    >>> round(rest.norm, 2), rest.half_life
    (22.36, 1733)
    """

    exists: bool
    norm: float | None
    low: float | None
    high: float | None
    steps: int | None
    half_life: int | None
    angular_update: float | None
    lr: float
    weight_decay: float


def equilibrium(
    drive: DriveEstimate, sumsq: float, lr: float, weight_decay: float, step: float = 0.0
) -> Equilibrium:
    """The equilibrium for a drive, and how long it takes from ρ² = `sumsq` at `step`."""
    factor = 1.0 - lr * weight_decay
    if lr == 0 or weight_decay == 0 or drive.value <= 0:
        return Equilibrium(False, None, None, None, None, None, None, lr, weight_decay)
    rest = lr**2 * drive.value / (1.0 - factor**2)
    pace = -2 * float(np.log(factor))
    away = abs(sumsq / rest - 1)
    steps = int(np.ceil(np.log(away / _SETTLED) / pace)) if away > _SETTLED else 0
    then = np.array([step + max(steps, 1 / pace)])
    wide = float(np.exp(0.98 * drive.spread(step, then)[0]))  # 1.96 in ρ², half of it in ρ
    norm = float(np.sqrt(rest))
    half = int(np.ceil(np.log(2) / pace))
    angle = float(np.sqrt(1.0 - factor**2))
    return Equilibrium(True, norm, norm / wide, norm * wide, steps, half, angle, lr, weight_decay)


def one_step_angle(angular_update: float, momentum: float) -> float:
    """The angle between θ before and after one update, when updates are averages over past gradients.

    With momentum β successive updates share β of their direction, so that n of them cover as much as
    n·(1 + β)/(1 − β) independent ones; a single update is smaller by the square root of that factor.
    """
    return float(angular_update * np.sqrt((1 - momentum) / (1 + momentum)))
