"""The summary: a few sentences and numbers, for someone who reads nothing else."""

from __future__ import annotations

import math

from normscope.anatomy import of_scope
from normscope.theory.answer import Direction, Highlights
from normscope.theory.laws.growth import GrowthFit, LawFit
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import EXPONENTS
from normscope.views.page.formatting import count, formula, number, plural
from normscope.views.page.page_parts import Fact
from normscope.words import some

_CHOICES = {
    "several laws": "not the only law that fits",
    "too few points": "the closest; too few points for a choice",
}


def summary(found: Highlights) -> tuple[list[str], list[Fact]]:
    """The sentences and the numbers."""
    return sentences(found), facts(found)


def sentences(found: Highlights) -> list[str]:
    """What happened to the norm, and by which law."""
    first, last = number(found.first_norm), number(found.last_norm)
    subject, beside = f"The norm{of_scope(found.scope)}", _beside(found)
    if found.first_step == found.last_step:
        only = f"at step {count(found.first_step)}, the only checkpoint here"
        return [f"{subject} is {first} {only}{beside}."]
    span = f"at step {count(found.first_step)} to {last} at step {count(found.last_step)}"
    verb = "grew" if found.last_norm > found.first_norm else "shrank"
    turn = found.turn
    passing = f", with a {turn.kind} of {number(turn.value)} at step {count(turn.step)}" if turn else ""
    return [
        f"{subject} {verb} from {first} {span}{passing}{beside}.",
        *map(formula, found.fit.sentences[:1] if found.fit else ()),
    ]


def facts(found: Highlights) -> list[Fact]:
    """The numbers, each with a qualification."""
    norm, beside = f"Norm{of_scope(found.scope)}", found.beside
    first, last = (f"step {count(step)}" for step in (found.first_step, found.last_step))
    if beside:
        first += f"; {beside.words} {number(beside.first)}"
        last += f"; {beside.words} {number(beside.last)}"
    several = found.last_step != found.first_step
    shown = [Fact(f"{norm} at the start" if several else norm, number(found.first_norm), first)]
    if several:
        shown.append(Fact(f"{norm} at the end", number(found.last_norm), last))
    if found.fit:
        shown += _law(found.fit, of_scope(found.scope))
    if found.direction:
        shown += _direction(found.direction, of_scope(found.scope))
    return shown


def _law(fit: GrowthFit, whose: str) -> list[Fact]:
    law = fit.law()
    shown, r2 = formula(law.formula), f"R² {law.r2:.5f}"
    if fit.verdict == "none":
        found = [Fact(f"Law{whose}", "none", f"closest: {shown}, {r2}")]
    else:
        found = [Fact(f"Law{whose}", shown, f"{r2}, {_choice(fit, law)}")]
    return found + ([_exponent(fit.exponent, whose)] if fit.exponent else [])


def _choice(fit: GrowthFit, law: LawFit) -> str:
    """How sure the law is; a rival that predicts held-out points as well is named."""
    if fit.verdict == "several laws" and fit.residuals_wander:
        return "fits best, but is not claimed"
    if fit.verdict != "one law":
        return _CHOICES[fit.verdict]
    rivals = [
        other.name
        for other in fit.laws
        if other.name != law.name
        and other.holdout is not None
        and law.holdout is not None
        and other.holdout <= law.holdout
    ]
    if rivals:
        verb = "predicts" if len(rivals) == 1 else "predict"
        return f"claimed, though {some(rivals, 2)} {verb} as well"
    return "the choice is clear"


def _exponent(found: Interval, whose: str) -> Fact:
    """The free exponent; in words where its interval says that it is not known."""
    low, high = (number(round(end, found.digits), found.digits) for end in (found.low, found.high))
    at_end = any(math.isclose(a, b) for a, b in zip(EXPONENTS, (found.low, found.high), strict=True))
    if at_end or not found.tells:
        why = "cut off at the end of the range searched" if at_end else "wider than the value"
        return Fact(f"Free exponent{whose}", "not known", f"95 % interval {low} to {high}, {why}")
    return Fact(f"Free exponent{whose}", number(found.value, 3), f"95 % interval {low} to {high}")


def _beside(found: Highlights) -> str:
    """ "; with embeddings and head from 61.2 to 63.07"."""
    if not found.beside:
        return ""
    words, first, last = found.beside.words, number(found.beside.first), number(found.beside.last)
    only = found.first_step == found.last_step
    return f"; {words} {first}" if only else f"; {words} from {first} to {last}"


def _direction(found: Direction, whose: str) -> list[Fact]:
    gap = f"over {plural(found.step - found.previous, 'step')}, {count(found.previous)} → {count(found.step)}"
    return [
        Fact(f"Last cosine{whose}", number(found.cosine), gap),
        Fact(f"Last alignment{whose}", number(found.alignment, 3), gap),
    ]
