"""The summary: a few sentences and numbers, for someone who reads nothing else."""

from __future__ import annotations

from normscope.theory.answer import Direction, Highlights
from normscope.theory.laws.growth import GrowthFit
from normscope.views.page.formatting import count, formula, number
from normscope.views.page.page_parts import Fact


def summary(found: Highlights) -> tuple[list[str], list[Fact]]:
    """The sentences and the numbers."""
    return sentences(found), facts(found)


def sentences(found: Highlights) -> list[str]:
    """What happened to the norm, and by which law."""
    first, last = number(found.first_norm), number(found.last_norm)
    if found.first_step == found.last_step:
        return [f"The parameter norm is {first} at step {count(found.first_step)}, the only checkpoint here."]
    span = f"at step {count(found.first_step)} to {last} at step {count(found.last_step)}"
    verb = "grew" if found.last_norm > found.first_norm else "shrank"
    turn = found.turn
    passing = f", with a {turn.kind} of {number(turn.value)} at step {count(turn.step)}" if turn else ""
    return [
        f"The parameter norm {verb} from {first} {span}{passing}.",
        *map(formula, found.fit.sentences[:1] if found.fit else ()),
    ]


def facts(found: Highlights) -> list[Fact]:
    """The numbers, each with a qualification."""
    shown = [Fact("Norm at the start", number(found.first_norm), f"step {count(found.first_step)}")]
    if found.last_step != found.first_step:
        shown.append(Fact("Norm at the end", number(found.last_norm), f"step {count(found.last_step)}"))
    if found.fit:
        shown += _law(found.fit)
    if found.direction:
        shown += _direction(found.direction)
    return shown


def _law(fit: GrowthFit) -> list[Fact]:
    law = fit.law()
    choice = "the choice is clear" if fit.decided else "not the only law that fits"
    found = [Fact("Law", formula(law.formula), f"R² {law.r2:.5f}, {choice}")]
    if fit.exponent:
        low, high = number(fit.exponent.low, 3), number(fit.exponent.high, 3)
        found.append(Fact("Free exponent", number(fit.exponent.value, 3), f"95 % interval {low} to {high}"))
    return found


def _direction(found: Direction) -> list[Fact]:
    gap = f"steps {count(found.previous)} → {count(found.step)}"
    return [
        Fact("Last cosine", number(found.cosine), gap),
        Fact("Last alignment", number(found.alignment, 3), gap),
    ]
