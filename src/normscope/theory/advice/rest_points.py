"""Rules about equilibrium: which parameter groups are not at rest, where and when they will be.

Only groups whose optimizer is recorded are judged: whether weight decay is decoupled decides where they rest.
A group that holds less than MATTERS of ρ² is left out, and so is one whose rate is no longer near its peak:
rest at the end of a schedule is farther away than anyone will train.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from normscope.theory.advice.advice_result import Advice, Judgement, Severity
from normscope.theory.advice.certainty import (
    interval,
    probability_above,
    probability_near,
    rounded,
    short,
    times,
)
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.dynamics.dynamics import WIDEST, Equilibrium
from normscope.theory.dynamics.group_dynamics import group_equilibrium
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.words import joined

MATTERS = 0.1  # a group with less of ρ² decides nothing about the norm
STILL_AT_PEAK = 0.5  # of the peak rate: below, a schedule is ending
NEAR = 1.1  # a norm within this factor of its equilibrium is at rest
SURE = 0.9
FEWEST_POINTS = 20
TOO_LATE = 100.0  # runs: rest that is farther away is of no use to anyone
COLLAPSED = 0.5  # of its first norm: below, decay has outweighed the gradients
USUAL_DECAYS = {"SGD": (1e-4, 1e-3)}  # by optimizer; of any other: 0.01 and 0.1


@dataclass(frozen=True, eq=False)
class Resting:
    """A parameter group, its share of ρ², and where it comes to rest under its last rates."""

    group: RateGroup
    share: float
    rest: Equilibrium

    @property
    def norm(self) -> float:
        """The norm at the last step."""
        return math.sqrt(float(self.group.sumsq[-1]))

    @property
    def words(self) -> str:
        """The group, for people."""
        lr, decay = self.group.last_rates
        tensors = f"{self.group.tensors} tensor{'s' * (self.group.tensors != 1)}"
        held = f"{tensors}, {100 * self.share:.0f} % of the squared norm"
        return f"The {self.group.kind} group with learning rate {lr:g} and weight decay {decay:g} ({held})"


def rest(known: RunEvidence) -> Judgement:
    """Every group that has an equilibrium: at rest, on the way there, or collapsed."""
    if not known.groups:
        return Judgement(missing=True, unknown=_NO_RATES)
    if not any(each.kind for each in known.groups):
        return Judgement(missing=True, unknown=_NO_KIND)
    judged = [each for each in resting(known) if each.rest.exists]
    found = [advice for each in judged if (advice := _decayed(known, each))]
    told = {each.evidence["group"] for each in found}
    vague = [each for each in judged if _vague(each) and each.group.name not in told]
    return Judgement(tuple(found), _rested(found), unknown=_vagueness(vague))


_NO_RATES = (
    "Learning rates were not recorded, so nothing is said about rest and effective learning rate: "
    "train with ns.Monitor(model, optimizer, 'run.db')."
)
_NO_KIND = (
    "Which optimizer was used was not recorded, so nothing is said about rest: whether its weight decay is "
    "decoupled decides that. ns.Monitor of this release records it."
)


def resting(known: RunEvidence) -> list[Resting]:
    """The groups that matter, are still trained near their peak rate, and have enough points."""
    total = sum(float(each.sumsq[-1]) for each in known.groups) or 1.0
    found = []
    for each in known.groups:
        lr, decay = each.last_rates
        if each.kind and matters(each, total) and lr >= STILL_AT_PEAK * each.rates.lr.max() and lr > 0:
            found.append(Resting(each, float(each.sumsq[-1]) / total, group_equilibrium(each, lr, decay)))
    return found


def matters(group: RateGroup, total: float) -> bool:
    """Whether a group has enough points, and enough of ρ², to be worth a sentence."""
    return len(group.steps) >= FEWEST_POINTS and float(group.sumsq[-1]) >= MATTERS * total > 0


def _vague(each: Resting) -> bool:
    return not each.rest.known


def _vagueness(vague: list[Resting]) -> str:
    if not vague:
        return ""
    ends = joined(f"{short(each.rest.low)} to {short(each.rest.high)}" for each in vague)
    rates = joined(
        "learning rate {:g} and weight decay {:g}".format(*each.group.last_rates) for each in vague
    )
    return (
        f"Where the parameters with {rates} come to rest cannot be told yet (95 % interval {ends}): weight "
        "decay needs longer than this run to act."
    )


def _rested(found: list[Advice]) -> str:
    at_rest = [each for each in found if each.severity == "fine"]
    norms = joined(f"{each.evidence['norm']:.3g} of {each.evidence['rest']:.3g}" for each in at_rest)
    return f"parameter groups are at rest (norm {norms})" if at_rest else ""


def _decayed(known: RunEvidence, each: Resting) -> Advice | None:
    norm, low, high = (value or 0.0 for value in (each.rest.norm, each.rest.low, each.rest.high))
    start = math.sqrt(float(each.group.sumsq[0]))
    if norm < COLLAPSED * start and each.norm < COLLAPSED * start:
        sure = 1.0 - probability_above(COLLAPSED * start, norm, low, high)
        return _collapsed(known, each, start, sure) if sure >= SURE else None
    if _vague(each):
        return None
    away = abs(math.log(each.norm / norm))
    if away <= math.log(NEAR):
        return _at_rest(known, each, probability_near(each.norm, NEAR**2, norm, low, high))
    above = probability_above(each.norm, norm, low, high)
    sure = max(above, 1.0 - above)
    return _on_the_way(known, each, sure) if sure >= SURE else None


def _numbers(each: Resting) -> dict[str, float | str]:
    found = each.rest
    return {
        "group": each.group.name,
        "share": each.share,
        "norm": each.norm,
        "rest": found.norm or 0.0,
        "low": found.low or 0.0,
        "high": found.high or 0.0,
        "steps": float(found.steps or 0),
        "half_life": float(found.half_life or 0),
    }


def _on_the_way(known: RunEvidence, each: Resting, sure: float) -> Advice:
    found, run = each.rest, max(known.now, 1)
    steps = found.steps or 0
    pace = f"{rounded(steps)} more steps ({times(steps / run)} the run so far)"
    other, numbers, command = other_decays(known, each)
    said = (
        f"{each.words} is not at rest: its norm {short(each.norm)} {_way(each)} {short(found.norm)} "
        f"({interval(found.low, found.high)}), which takes {pace}.{other}"
    )
    distance = abs(math.log(each.norm / (found.norm or 1.0)))
    return Advice("rest", said, _numbers(each) | numbers, sure, command, "watch", size=distance)


def _way(each: Resting) -> str:
    return "grows to" if each.norm < (each.rest.norm or 0.0) else "falls to"


def _at_rest(known: RunEvidence, each: Resting, sure: float) -> Advice:
    found = each.rest
    said = (
        f"{each.words} is at rest: its norm is {short(each.norm)}, growth and decay balance at "
        f"{short(found.norm)} ({interval(found.low, found.high)}). Training longer at these rates turns it "
        f"without growing it; it forgets half of ρ² in {rounded(found.half_life)} steps."
    )
    return Advice("rest", said, _numbers(each), sure, forecast_command(known), "fine", size=each.share)


def _collapsed(known: RunEvidence, each: Resting, start: float, sure: float) -> Advice:
    share = each.norm / start
    said = (
        f"{each.words} shrank to {100 * share:.2g} % of its first norm ({short(start)} → "
        f"{short(each.norm)}): decay outweighs the gradients until {short(each.rest.norm)} "
        f"({interval(each.rest.low, each.rest.high)}). If that is not intended, lower it."
    )
    evidence = _numbers(each) | {"first_norm": start}
    severity: Severity = "act" if share < COLLAPSED / 2 else "watch"
    return Advice("shrinking", said, evidence, sure, forecast_command(known), severity, size=-math.log(share))


def other_decays(known: RunEvidence, each: Resting) -> tuple[str, dict[str, float | str], str]:
    """What two other weight decays would bring, as a sentence; and the command that shows the first."""
    lr, decay = each.group.last_rates
    others: tuple[float, ...] = (decay / 10, decay * 10) if decay else _usual(each.group)
    words, numbers, shown = [], dict[str, float | str](), None
    if not decay and known.main.last_rates[1]:
        others = ()  # no option of `forecast` gives decay to a group that has none while others have some
    for other in others:
        found = group_equilibrium(each.group, lr, other)
        if not found.within(WIDEST**2):
            continue
        if (found.steps or 0) > TOO_LATE * max(known.now, 1):
            continue
        between = f"({short(found.low)} to {short(found.high)})"
        words.append(f"{other:g} at {short(found.norm)} {between} after {rounded(found.steps)} steps")
        numbers |= {
            f"rest at decay {other:g}": found.norm or 0.0,
            f"steps at decay {other:g}": found.steps or 0,
        }
        shown = shown or other
    sentence = f" Rest under another weight decay: {', and '.join(words)}." if words else ""
    return (
        sentence,
        numbers,
        forecast_command(known, None if shown is None else _option(known, each.group, shown)),
    )


def _usual(group: RateGroup) -> tuple[float, float]:
    return USUAL_DECAYS.get(group.kind, (0.01, 0.1))


def _option(known: RunEvidence, group: RateGroup, decay: float) -> float:
    """The --weight-decay that gives this group `decay`: the option is that of the largest trained group."""
    main, own = known.main.last_rates[1], group.last_rates[1]
    return decay * main / own if main and own else decay


def forecast_command(known: RunEvidence, decay: float | None = None) -> str:
    """The command that shows the equilibria of all groups, under another decay of the largest if given."""
    plan = () if decay is None else ("--weight-decay", f"{decay:g}")
    return known.command("forecast", "--to", max(2 * known.now, 1), *plan, "--json")
