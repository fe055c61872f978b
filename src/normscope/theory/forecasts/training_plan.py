"""How training continues: learning rate and weight decay of every parameter group, past and future.

A plan changes the future only. Where the past is not recorded, it is assumed to have had the plan's rates.
The rate that is given belongs to the group with the largest norm; the others keep their ratio to it, because
that is what changing one number of a configuration does. Groups without weight decay stay without.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.errors import UsageError
from normscope.option_checks import check_kind, check_number
from normscope.theory.dynamics.group_dynamics import far_rates
from normscope.theory.dynamics.learning_rates import SEGMENTS, Rates, check_rates, is_file, scheduled
from normscope.theory.dynamics.lr_shapes import SCHEDULES, LRShape
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.laws.laws import Array
from normscope.theory.logs.rate_columns import logged_rates

DEFAULT_MOMENTUM = 0.9
_FORM = "NAME:RATE:FINAL:STEP, such as cosine:3e-4:1e-5:100000"


@dataclass(frozen=True)
class Plan:
    """How training continues; None keeps what the run recorded last.

    `lr` is the learning rate, or a schedule from step 0 on, NAME:RATE:FINAL:STEP: "cosine:3e-4:1e-5:100000"
    falls from 3e-4 to 1e-5 at step 100,000. `weight_decay` is the decoupled weight decay. `schedule` is
    constant, cosine, linear, inverse-sqrt or wsd from the last step of the run to the step asked for, or a
    CSV file with the columns step and lr. `table` is a CSV file with the columns step, lr and, if it changes,
    weight_decay. `momentum` is Adam's β₁ or SGD's momentum, where the run did not record it (then 0.9 by
    default); it is used only for the angle of a single step at the equilibrium.

    >>> import normscope as ns
    >>> plan = ns.Plan(lr=1e-3, weight_decay=0.1, schedule="cosine")
    >>> ns.forecast("t5-base", 600_000, plan).method
    'dynamics'
    """

    lr: float | str | None = None
    weight_decay: float | None = None
    schedule: str | os.PathLike[str] | None = None
    momentum: float | None = None
    table: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.lr, str):
            object.__setattr__(self, "lr", _number_or_text(self.lr))
        for option in ("lr", "weight_decay"):
            value = getattr(self, option)
            if value is not None and not isinstance(value, str):
                object.__setattr__(self, option, check_number(option, value, 0))
        if self.momentum is not None:
            check_number("momentum", self.momentum, 0, 1)
        for option in ("schedule", "table"):
            if getattr(self, option) is not None:
                check_kind(option, getattr(self, option), (str, os.PathLike), "a name or a CSV file")
                object.__setattr__(self, option, os.fspath(getattr(self, option)))
        self._refuse_conflicts()

    def _refuse_conflicts(self) -> None:
        if self.table is not None and (self.lr is not None or self.schedule is not None):
            raise UsageError("a table of rates (--plan) gives the learning rates; leave out lr and schedule")
        if isinstance(self.lr, str) and self.schedule is not None:
            raise UsageError(f"lr={self.lr!r} is a schedule already; leave out schedule (--schedule)")

    @property
    def given(self) -> bool:
        """Whether the plan says anything about the rates."""
        return any(value is not None for value in (self.lr, self.weight_decay, self.schedule, self.table))

    @property
    def whole(self) -> bool:
        """Whether the plan gives the rates of the past as well: a table, or a schedule from step 0."""
        return self.table is not None or isinstance(self.lr, str)

    def rates(self, last: tuple[float, float] | None, now: float, to: float) -> Rates:
        """Learning rate and weight decay of the main group; `last` are its last ones, if they are known."""
        decay = self.weight_decay if self.weight_decay is not None else last[1] if last else 0.0
        if self.table is not None:
            return _reaching(_table(self.table, self.weight_decay, decay), self.table, to)
        if isinstance(self.lr, str):
            return _spelled(self.lr, decay)
        if self.lr is not None and is_file(self.schedule) and last is not None:
            raise UsageError(f"{self.schedule} gives the learning rates; leave out lr (--lr)")
        lr = self.lr if self.lr is not None else last[0] if last else None
        if lr is None:
            raise UsageError("the run recorded no learning rate; give it with lr (--lr)")
        if self.lr is None and lr == 0 and not is_file(self.schedule):
            raise UsageError(
                f"the learning rate is 0 at step {now:.0f}, the last one: schedule and weight decay have no "
                "effect there; give the learning rate with lr (--lr)"
            )
        name = os.fspath(self.schedule or "constant")
        found = scheduled(name, lr, decay, now, to)
        return _reaching(found, name, to) if is_file(name) else found


def _reaching(rates: Rates, path: str | os.PathLike[str], to: float) -> Rates:
    """The rates of a file; refused if they all belong to steps after the forecast."""
    if rates.steps[0] > to:
        raise UsageError(
            f"{path} begins at step {rates.steps[0]:.0f}, after step {to:.0f}, which is to be forecast"
        )
    return rates


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        _spelled(text, 0.0)
        return text


def _spelled(text: str, weight_decay: float) -> Rates:
    """The rates of a schedule such as cosine:3e-4:1e-5:100000."""
    name, *numbers = text.split(":")
    try:
        rate, final, end = map(float, numbers)
    except ValueError:
        raise UsageError(f"lr must be a number, or {_FORM}; got {text!r}") from None
    if name not in SCHEDULES:
        raise UsageError(f"unknown schedule {name!r} in lr={text!r}: expected {', '.join(SCHEDULES)}")
    for value in (rate, final):
        check_rates(value, weight_decay)
    if not (np.isfinite(end) and end >= 1 and rate > 0):
        raise UsageError(f"lr must be {_FORM}, with a rate above 0 and a step of at least 1; got {text!r}")
    steps = np.linspace(0.0, end, SEGMENTS)
    lr = rate * LRShape(name, final / rate).factor(steps, 0.0, end)
    return Rates(steps, lr, np.full(len(steps), weight_decay))


def _table(path: str | os.PathLike[str], weight_decay: float | None, held: float) -> Rates:
    """The rates of a table; a weight decay that is given, or else the last one, where it has none."""
    found, reason = logged_rates(os.fspath(path))
    if found is None:
        raise UsageError(f"{reason}; a plan needs the columns step and lr, and may have weight_decay")
    if weight_decay is not None and found.weight_decay is not None:
        raise UsageError(f"{path} gives the weight decay; leave out weight_decay (--weight-decay)")
    decay = np.full(len(found.steps), held) if found.weight_decay is None else found.weight_decay
    for pair in zip(found.lr.tolist(), decay.tolist(), strict=True):
        check_rates(*pair)
    return Rates(found.steps, found.lr, decay)


def main_group(groups: Sequence[RateGroup]) -> RateGroup:
    """The group with the largest norm among those that are trained."""
    trained = [group for group in groups if group.rates.lr.any()]
    return max(trained or groups, key=lambda group: float(group.sumsq[-1]))


def planned(plan: Plan, groups: Sequence[RateGroup], now: float, to: float) -> tuple[Rates, ...]:
    """The rates of each group: as recorded, and from step `now` on as planned, if anything is."""
    if not plan.given:
        return tuple(group.rates for group in groups)
    known = [group.until(now) for group in groups]
    main = main_group(known)
    future = plan.rates(main.last_rates, now, to)
    futures = tuple(_scaled(future, group, main) for group in known)
    _refuse_decay(plan, known, futures)
    return tuple(group.rates.then(now, later) for group, later in zip(known, futures, strict=True))


def _scaled(future: Rates, group: RateGroup, main: RateGroup) -> Rates:
    """The main group's planned rates, in the ratio that this group's last rates have to the main one's."""
    lr, decay = (_ratio(group.rates, main.rates, name) for name in ("lr", "weight_decay"))
    return Rates(future.steps, future.lr * lr, future.weight_decay * decay)


def _ratio(mine: Rates, other: Rates, name: str) -> float:
    """The ratio of two rates at the last step where the other one was above 0; 1 if it never was."""
    above = np.flatnonzero(getattr(other, name) > 0)
    if not len(above):
        return 1.0
    step = other.steps[above[-1] :][:1]
    first, second = (float(np.interp(step, rates.steps, getattr(rates, name))[0]) for rates in (mine, other))
    return first / second


def _refuse_decay(plan: Plan, groups: Sequence[RateGroup], futures: Sequence[Rates]) -> None:
    """Refuse weight decay that would have no effect on the forecast, or that would erase the parameters."""
    trained = [group for group in groups if group.rates.lr.any()]
    if plan.weight_decay is not None and trained and all(group.decay_factor is None for group in trained):
        raise UsageError(
            f"the weight decay of {trained[0].kind} is added to the gradient, which is then rescaled: how "
            "strongly it acts is unknown; leave out weight_decay (--weight-decay)"
        )
    for group, future in zip(groups, futures, strict=True):
        taken = float((future.lr * future.weight_decay).max()) * (group.decay_factor or 0.0)
        if taken >= 1:
            raise UsageError(
                f"{group.name}: weight decay would take {taken:g} of the parameters in a step (learning rate "
                "× weight decay, over 1 − momentum where it is added to the gradient); it must be below 1"
            )


def out_of_range(groups: Sequence[RateGroup], futures: Sequence[Rates], ahead: Array) -> float:
    """|log| of the furthest learning rate ahead from those at which the drive was measured; 0 if inside."""
    pairs = zip(groups, futures, strict=True)
    return max((float(far_rates(group, future.at(ahead)[0]).max()) for group, future in pairs), default=0.0)
