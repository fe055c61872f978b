"""The findings of a forecast, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normscope.anatomy import of_scope
from normscope.theory.dynamics.dynamics import Equilibrium

if TYPE_CHECKING:
    from normscope.theory.dynamics.forecast import Forecast


def forecast_sentences(result: Forecast) -> list[str]:
    """The expected value, how it was found, and the equilibrium."""
    change = result.value / result.value_now - 1 if result.value_now else 0.0
    sentences = [
        f"{result.past.subject} is expected at {result.value:.4g} at step {result.to:,} "
        f"(95 % interval {result.low:.4g} to {result.high:.4g}), {100 * change:+.1f} % from "
        f"{result.value_now:.4g} at step {result.now:,}."
    ]
    if result.method == "laws":
        laws = ", ".join(f"{name} {value:.4g}" for name, value in result.laws.items())
        return [*sentences, f"By the growth laws that fit, best predictor first: {laws}."]
    value, low, high = result.by_law
    sentences.append(
        f"It follows from the norm recursion, fitted to the run and continued. The growth laws, which ignore "
        f"learning rate and weight decay, give {value:.4g} ({low:.4g} to {high:.4g})."
    )
    return [*sentences, *_equilibrium_sentences(result)]


def _why_no_equilibrium(rest: Equilibrium | None) -> str:
    if rest is not None and rest.lr == 0:
        return "with learning rate 0 the norm no longer moves"
    if rest is not None and rest.weight_decay > 0:
        return "the updates shrink the norm even without weight decay"
    return "without weight decay nothing balances the growth"


def _equilibrium_sentences(result: Forecast) -> list[str]:
    rest = result.equilibrium
    if rest is None or not rest.exists or rest.norm is None or rest.half_life is None:
        return [f"There is no equilibrium: {_why_no_equilibrium(rest)}."]
    where = f"With learning rate {rest.lr:g} and weight decay {rest.weight_decay:g}"
    band = f"{rest.norm:.4g} (95 % interval {rest.low:.4g} to {rest.high:.4g})"
    way = "it is there already" if not rest.steps else f"the distance halves every {rest.half_life:,} steps"
    sentences = [f"{where} the norm{of_scope(result.scope)} settles at {band}; {way}."]
    if result.angle_one_step is not None and rest.angular_update is not None:
        sentences.append(
            f"There the direction turns by {rest.angular_update:.4g}·√n radians in n steps, "
            f"and by {result.angle_one_step:.4g} in a single step."
        )
    return sentences
