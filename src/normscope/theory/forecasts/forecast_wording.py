"""The findings of a forecast, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normscope.anatomy import of_scope
from normscope.theory.forecasts.candidates import LAST, LAW_PREFIX
from normscope.words import sentence

if TYPE_CHECKING:
    from normscope.theory.dynamics.dynamics import Equilibrium
    from normscope.theory.forecasts.forecast_result import Forecast
    from normscope.theory.forecasts.group_outlook import GroupOutlook

SHOWN_GROUPS = 3
_STILL = 1e-8  # a mean error of the last value below which nothing moved
_NEAR = 0.02  # a relative distance from the equilibrium that counts as being there


def forecast_sentences(result: Forecast) -> list[str]:
    """The expected value, how it was found, how well that worked, and the equilibrium."""
    return [_expected(result), _method(result), *_equilibrium_sentences(result), *_rotations(result.groups)]


def _expected(result: Forecast) -> str:
    if not result.tells:
        return (
            f"{result.past.subject} is expected between {result.low:.4g} and {result.high:.4g} at step "
            f"{result.to:,} (95 % interval), which is too wide to name a value; it is {result.value_now:.4g} "
            f"at step {result.now:,}."
        )
    relative = f", {100 * (result.value / result.value_now - 1):+.1f} % from" if result.value_now else ""
    change = relative if _is_positive(result) else "; it is"
    return (
        f"{result.past.subject} is expected at {result.value:.4g} at step {result.to:,} "
        f"(95 % interval {result.low:.4g} to {result.high:.4g}){change} "
        f"{result.value_now:.4g} at step {result.now:,}."
    )


def _method(result: Forecast) -> str:
    """Where the forecast comes from, and what the naive guess would have been."""
    if not result.backtest:
        return "The series is too short for a backtest: this is its last value."
    mine, last = (_size(result.backtest[name], result) for name in ("forecast", "last"))
    if result.method == LAST:
        if result.trust > 0:
            return (
                f"It is mostly the last value: inside the known part other forecasts beat it too little "
                f"(mean error {mine} against {last})."
            )
        if not result.weights:
            return _untried(result, last)
        return (
            "It is the last value: inside the known part, where each candidate predicts later points from "
            f"earlier ones, none was clearly better (the last value was off by {last} on average)."
        )
    way = {
        "dynamics": f"It follows from the norm recursion of {_groups(result)} under these rates",
        "trend": f"It continues the recent trend{_of_square(result)}, with the damping that worked best",
        "laws": f"It follows mostly from growth laws that start at the last value ({_best_laws(result)})",
    }[result.method]
    return (
        f"{way}. Inside the known part this was off by {mine} on average, the last value by {last}; "
        f"a·√t + b would give {result.naive['sqrt']:.4g}."
    )


def _untried(result: Forecast, last: str) -> str:
    """Why no candidate took part."""
    if result.backtest["last"] < _STILL:
        return "It is the last value: the series does not move."
    return (
        "It is the last value: trends and growth laws are continued only while a series climbs, and this one "
        f"does not (inside the known part the last value was off by {last} on average)."
    )


def _is_positive(result: Forecast) -> bool:
    """Whether the series can be a norm: then errors are relative, and trends those of its square."""
    return bool((result.past.values > 0).all())


def _of_square(result: Forecast) -> str:
    if not _is_positive(result):
        return ""
    return f" of the squared {result.past.unit or 'norm'}"


def _size(error: float, result: Forecast) -> str:
    """An error of a norm in per cent, of another measure as a share of its range."""
    if _is_positive(result):
        return f"{_per_cent(float(np.expm1(error)))} %"
    return f"{_per_cent(error)} % of the range"


def _per_cent(share: float) -> str:
    """Two digits, without powers of ten."""
    if share < 1e-6:
        return "less than 0.0001"
    return f"{100 * share:.2g}" if share < 0.995 else f"{100 * share:.0f}"


def _groups(result: Forecast) -> str:
    count = len(result.groups)
    return "the parameters" if count == 1 else f"{count} parameter groups"


def _best_laws(result: Forecast) -> str:
    laws = [
        name
        for name in sorted(result.weights, key=lambda n: -result.weights[n])
        if name.startswith(LAW_PREFIX)
    ]
    return ", ".join(name.removeprefix(LAW_PREFIX) for name in laws[:3])


def _equilibrium_sentences(result: Forecast) -> list[str]:
    rest = result.equilibrium
    if rest is None:
        return []
    if not rest.exists or rest.norm is None or rest.half_life is None:
        return [
            f"There is no equilibrium of the whole: {_why_none(result.groups)}.",
            *_own_rests(result.groups),
        ]
    where = f"With learning rate {rest.lr:g} and weight decay {rest.weight_decay:g}"
    subject = f"the norm{of_scope(result.scope)}"
    sentences = [f"{where}{'' if rest.known else ','} {_settles(subject, rest)}; {_way(rest, result)}."]
    if result.angle_one_step is not None and rest.angular_update is not None:
        sentences.append(
            f"At rest the direction turns by {rest.angular_update:.4g}·√n radians in n steps, "
            f"and by {result.angle_one_step:.4g} in a single step."
        )
    return sentences


def _rotations(groups: tuple[GroupOutlook, ...]) -> list[str]:
    """How fast the largest groups turn, which is their effective learning rate."""
    moving = [group for group in groups[:SHOWN_GROUPS] if group.lr > 0]
    return [group.rotation.sentence for group in moving if group.rotation is not None]


def _settles(subject: str, rest: Equilibrium) -> str:
    """Where something comes to rest, or that this is not known yet."""
    interval = f"95 % interval {rest.low:.4g} to {rest.high:.4g}"
    if rest.known:
        return f"{subject} settles at {rest.norm:.4g} ({interval})"
    return f"where {subject} settles cannot be told yet ({interval})"


def _way(rest: Equilibrium, result: Forecast) -> str:
    if rest.known and rest.norm and abs(result.value_now / rest.norm - 1) < _NEAR:
        return "it is there already"
    return f"the distance of its square halves every {rest.half_life:,} steps"


def _why_none(groups: tuple[GroupOutlook, ...]) -> str:
    reasons = dict.fromkeys(group.why for group in groups if group.why)
    if len(reasons) == 1 and all(group.why for group in groups):
        return next(iter(reasons))
    shown = [f"{group.group}: {group.why}" for group in groups[:SHOWN_GROUPS] if group.why]
    return "; ".join(shown) or "nothing balances the growth"


def _own_rests(groups: tuple[GroupOutlook, ...]) -> list[str]:
    """The equilibria of single groups, where the whole has none."""
    resting = [group for group in groups if group.equilibrium.exists][:SHOWN_GROUPS]
    return [sentence(_settles(group.group, group.equilibrium)) for group in resting]
