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

from normscope.theory.dynamics.learning_rates import SEGMENTS, Rates
from normscope.theory.laws.laws import Array


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


WIDEST = 3.0
"""An interval of an equilibrium whose ends differ by a larger factor does not say where it is."""


@dataclass(frozen=True)
class Equilibrium:
    """The norm at which growth and decay balance under constant rates, with a 95 % interval.

    `steps` is how many more steps bring ρ² within 1 % of it, `half_life` how many halve the distance.
    `angular_update` is the rate of rotation there: after n steps the direction has turned by about
    `angular_update`·√n radians, √(2ηλ) for small ηλ. `exists` is False without weight decay, without
    learning rate, or with a drive that is not positive.

    >>> import normscope as ns
    >>> rest = ns.forecast("t5-base", 600_000, ns.Plan(lr=2e-3, weight_decay=0.1)).equilibrium
    >>> rest.half_life, rest.low < rest.norm < rest.high
    (1733, True)
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

    @property
    def known(self) -> bool:
        """Whether it exists and its interval says where: the ends differ by a factor of 3 at most."""
        return self.within(WIDEST)

    def within(self, factor: float) -> bool:
        """Whether it exists, and the ends of its interval differ by this factor at most."""
        if not self.exists or not self.low or not self.high:
            return False
        return self.high <= factor * self.low


def one_step_angle(angular_update: float, momentum: float) -> float:
    """The angle between θ before and after one update, when updates are averages over past gradients.

    With momentum β successive updates share β of their direction, so that n of them cover as much as
    n·(1 + β)/(1 − β) independent ones; a single update is smaller by the square root of that factor.
    """
    return float(angular_update * np.sqrt((1 - momentum) / (1 + momentum)))
