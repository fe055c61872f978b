"""What a norm budget means, in sentences: of what growth is made, what decay took, where updates point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normscope.anatomy import scope_words

if TYPE_CHECKING:
    from normscope.theory.dynamics.budget import NormBudget
    from normscope.theory.dynamics.interval_sums import IntervalSums

_MOSTLY, _HARDLY = 0.8, 0.3  # shares of the growth from which, and up to which, a regime has its name


def budget_sentences(result: NormBudget, sums: IntervalSums) -> list[str]:
    """The parts of the growth and the course of the alignment over the intervals `sums`."""
    return [*_parts(result), *_course(sums)]


def _parts(result: NormBudget) -> list[str]:
    when = f"since step {result.since:,}" if result.since else f"up to step {result.until:,}"
    whole = scope_words(result.scope) if result.group == "total" else ""
    sentences = [f"{whole[:1].upper() + whole[1:] or result.group}: {_split(result, when)}"]
    if result.decay is not None and result.gradient is not None and result.gradient > 0:
        share = -result.decay / result.gradient
        sentences.append(
            f"Weight decay took back {100 * share:.0f} % of what the gradients added to ρ² {when}."
        )
    return sentences


def _course(sums: IntervalSums) -> list[str]:
    """How the alignment changes over the run, if there are enough intervals to say."""
    known = np.flatnonzero(np.isfinite(sums.alignment))
    if len(known) < 8:
        return []
    alignment, steps = sums.alignment[known], sums.steps[known]
    top = int(alignment.argmax())
    ends = f"ends at {_signed(alignment[-1])}"
    if 0 < top < len(known) - 1:
        peak = f"rises from {_signed(alignment[0])} to {_signed(alignment[top])} at step {int(steps[top]):,}"
        return [f"The alignment of updates with the parameters {peak}, then falls and {ends}."]
    return [f"The alignment of updates with the parameters begins at {_signed(alignment[0])} and {ends}."]


def _signed(value: float) -> str:
    """An alignment with its sign, unless it rounds to zero."""
    text = f"{value:+.3f}"
    return text if float(text) else "0.000"


def _split(result: NormBudget, when: str) -> str:
    share = result.diffusive_share
    angle = f"mean alignment {_signed(result.alignment)}"
    if share is None:
        return (
            f"ρ² fell {when}: the radial part removed {-result.radial:.4g} and the diffusive part "
            f"added {result.diffusive:.4g} ({angle})."
        )
    if share > 1.2:
        return (
            f"the diffusive part alone would have added {share:.1f} times the growth of ρ² {when}; "
            f"the radial part, negative as under weight decay, removed the rest ({angle})."
        )
    return f"{100 * share:.0f} % of the growth {when} is diffusive: {_regime(share)} ({angle})."


def _regime(share: float) -> str:
    if share >= _MOSTLY:
        return (
            "updates are nearly orthogonal to the parameters, the misaligned regime of "
            "Merrill et al. (2021), which predicts √t"
        )
    if share <= _HARDLY:
        return (
            "updates point along the parameters, the aligned regime of Merrill et al. (2021), "
            "which predicts growth faster than √t"
        )
    return "updates are partly aligned with the parameters, between the two regimes of Merrill et al. (2021)"
