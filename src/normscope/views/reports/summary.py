"""The summary: a few sentences and numbers, for someone who reads nothing else."""

from __future__ import annotations

from normscope.anatomy import of_scope
from normscope.theory.answer import Direction, Highlights
from normscope.theory.laws.growth import GrowthFit
from normscope.views.page.formatting import count, formula, number
from normscope.views.page.page_parts import Fact

_CHOICES = {
    "one law": "the choice is clear",
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
    shown = [Fact(f"{norm} at the start", number(found.first_norm), first)]
    if found.last_step != found.first_step:
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
        found = [Fact(f"Law{whose}", shown, f"{r2}, {_CHOICES[fit.verdict]}")]
    if fit.exponent:
        ends = (fit.exponent.low, fit.exponent.high)
        low, high = (number(round(end, fit.exponent.digits), fit.exponent.digits) for end in ends)
        found.append(
            Fact(f"Free exponent{whose}", number(fit.exponent.value, 3), f"95 % interval {low} to {high}")
        )
    return found


def _beside(found: Highlights) -> str:
    """ "; with embeddings and head from 61.2 to 63.07"."""
    if not found.beside:
        return ""
    words, first, last = found.beside.words, number(found.beside.first), number(found.beside.last)
    only = found.first_step == found.last_step
    return f"; {words} {first}" if only else f"; {words} from {first} to {last}"


def _direction(found: Direction, whose: str) -> list[Fact]:
    gap = f"steps {count(found.previous)} → {count(found.step)}"
    return [
        Fact(f"Last cosine{whose}", number(found.cosine), gap),
        Fact(f"Last alignment{whose}", number(found.alignment, 3), gap),
    ]
