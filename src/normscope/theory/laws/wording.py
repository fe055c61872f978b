"""The findings of fits and comparisons, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from normscope.anatomy import of_scope, scope_words
from normscope.remarks import unsound_sentence
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.law_choice import SAME_R2, Choice
from normscope.theory.laws.laws import EXPONENTS, PAPER_LAW
from normscope.words import joined, some

if TYPE_CHECKING:
    from normscope.theory.laws.compare import Comparison, GroupDifference
    from normscope.theory.laws.groups import GroupFit


def growth_sentences(
    r2: Mapping[str, float], choice: Choice, exponent: Interval | None, name: str
) -> tuple[str, ...]:
    """The choice, what would settle it, the exponent, and how well the paper's law fits."""
    parts = [_choice(r2, choice, name), _what_would_settle(choice), _exponent(exponent), _paper(r2, choice)]
    return tuple(sentence for sentence in parts if sentence)


def _choice(r2: Mapping[str, float], choice: Choice, name: str) -> str:
    law = laws()[choice.best]
    best = f"{choice.best} ({law.formula}, R² {r2[choice.best]:.5f})"
    if not choice.judged:
        return f"{name}: too few points to choose a law; {best} is closest."
    if choice.decided:
        return f"{name} grows by the law {best}: {law.meaning}."
    others = joined([f"{n} (R² {r2[n]:.5f})" for n in choice.candidates if n != choice.best])
    if choice.exact:
        return f"{name}: {best} fits best, but the data cannot distinguish it from {others}."
    if len(choice.candidates) == 1:
        return f"{name}: {best} fits best."
    fit = "fits" if len(choice.candidates) == 2 else "fit"
    return (
        f"{name}: {best} fits best, but {others} {fit} almost as well: "
        f"the data cannot distinguish these laws (R² within {SAME_R2:g})."
    )


def _what_would_settle(choice: Choice) -> str:
    """How far a run would have to continue to distinguish the laws that remain."""
    if not choice.judged or choice.decided:
        return ""
    misfit = (
        ""
        if choice.exact
        else f"No law is exact here: the residuals of {choice.best} are systematic, not random. "
    )
    reached = {name: step for name, step in choice.separating.items() if step is not None}
    never = [name for name in choice.separating if name not in reached]
    parts = []
    if reached:
        step = max(reached.values())
        parts.append(f"A run to about step {step:,} would distinguish {joined(reached)} from {choice.best}.")
    if never:
        parts.append(f"A run 100 times as long would not distinguish {joined(never)} from {choice.best}.")
    return (misfit + " ".join(parts)).strip()


def _exponent(exponent: Interval | None) -> str:
    if exponent is None:
        return ""
    if not EXPONENTS[0] < exponent.value < EXPONENTS[1]:
        return (
            f"No power of the step describes it: the fitted exponent is {exponent.value:g}, "
            "the end of the range searched."
        )
    return f"Free exponent p = {exponent.value:.3f}, 95 % interval {exponent.low:.3f} to {exponent.high:.3f}."


def _paper(r2: Mapping[str, float], choice: Choice) -> str:
    if PAPER_LAW not in r2 or not choice.judged:
        return ""
    sentence = f"The square-root law of Merrill et al. (2021), a·√t + b, has R² {r2[PAPER_LAW]:.5f}"
    if choice.decided and choice.best == PAPER_LAW:
        return f"{sentence} and is the law chosen."
    if PAPER_LAW in choice.candidates:
        return f"{sentence} and remains possible."
    rivals: tuple[str, ...] = ("sqrt-linear", "power")
    better = [name for name in rivals if name in choice.candidates] or [choice.best]
    return f"{sentence}; {joined(better)} fit{'s' * (len(better) == 1)} better."


def group_sentences(
    groups: Sequence[GroupFit], failed: Mapping[str, str], by: str, scope: str = ""
) -> tuple[str, ...]:
    """The median exponent, the groups whose exponent differs, and the groups without a fit."""
    known = [group for group in groups if group.exponent is not None]
    sentences = []
    if known:
        median = float(np.median([group.exponent for group in known if group.exponent is not None]))
        sentences.append(_overview(len(groups), by, median, of_scope(scope)))
        sentences.extend(_outstanding(known, median, faster=True))
        sentences.extend(_outstanding(known, median, faster=False))
    if len(known) > 1 and all(group.p_value is None for group in known):
        sentences.append("Fewer than four groups: too few to say which differ from the others.")
    elif len(known) > 1 and not any(group.differs for group in known):
        sentences.append("No group's exponent differs from the others (5 %, Holm-corrected).")
    sentences.extend(f"Left out: {reason}." for reason in failed.values())
    return tuple(sentences)


def _overview(count: int, by: str, median: float, whose: str) -> str:
    if count == 1:
        return f"1 group{whose} by {by} with exponent {median:.3f}."
    return f"{count} groups{whose} by {by}; the median of their exponents is {median:.3f}."


def _outstanding(groups: Sequence[GroupFit], median: float, faster: bool) -> list[str]:
    found = [g for g in groups if g.differs and g.exponent is not None and (g.exponent > median) == faster]
    if not found:
        return []
    names = some([f"{g.group} (p = {g.exponent:.3f})" for g in found], 8)
    return [f"These grow by a {'higher' if faster else 'lower'} power than the others: {names}."]


def comparison_sentences(result: Comparison, tolerance: float) -> list[str]:
    """Which groups differ and since when, which exponents differ, and which groups only one run has.

    First of all, if one of the series is not sound, and if the two do not count the same parameters.
    """
    return [*doubt_sentences(result), *_difference_sentences(result, tolerance)]


def doubt_sentences(result: Comparison) -> list[str]:
    """Which of the series is not sound, and whether the two count other parameters."""
    return [*_unsound(result), *_other_scope(result)]


def _unsound(result: Comparison) -> list[str]:
    sides = ((result.a, result.findings_a), (result.b, result.findings_b))
    return [f"{name}: {text}" for name, findings in sides if (text := unsound_sentence(findings))]


def _other_scope(result: Comparison) -> list[str]:
    """A sentence if the two do not count the same parameters, or if that is not known."""
    if result.scope_a == result.scope_b:
        return []
    sides = ((result.a, result.scope_a), (result.b, result.scope_b))
    known = [f"{name} counts {scope_words(scope)}" for name, scope in sides if scope]
    unknown = [f"which parameters {name} counts is not known" for name, scope in sides if not scope]
    return [f"These may not be the same parameters: {'; '.join([*known, *unknown])}."]


def _difference_sentences(result: Comparison, tolerance: float) -> list[str]:
    span = f"steps {result.first_step:,} to {result.last_step:,}"
    whose = of_scope(result.scope_a) if result.scope_a == result.scope_b else ""
    if len(result.groups) == 1:
        sentences = [_single_group(result.groups[0], result, span, tolerance)]
    else:
        apart = [group for group in result.groups if group.since is not None]
        sentences = [f"{len(apart)} of {len(result.groups)} groups{whose} by {result.by} differ over {span}."]
        sentences += [f"The largest difference is in {_difference(group)}." for group in apart[:1]]
        sentences += [f"Next: {joined([_difference(group) for group in apart[1:4]])}."] if apart[1:] else []
    powers = [_both_powers(group) for group in result.groups if group.differs]
    if powers:
        sentences.append(f"Different powers of the step (5 %, Holm-corrected): {some(powers, 6)}.")
    else:
        sentences.append("No exponent differs between the two (5 %, Holm-corrected).")
    for name, only in ((result.a, result.only_a), (result.b, result.only_b)):
        if only:
            sentences.append(f"Only in {name}: {some(only, 6)}.")
    return sentences


def _single_group(group: GroupDifference, result: Comparison, span: str, tolerance: float) -> str:
    same = result.scope_a if result.scope_a == result.scope_b else ""
    subject = f"The {result.measure}{of_scope(same)}: " if same else ""
    if group.since is None:
        bound = f"{100 * tolerance:.0f} % and noise"
        return f"{subject}{result.a} and {result.b} do not differ by more than {bound} over {span}."
    change = f"{100 * group.ratio - 100:+.1f} %"
    return (
        f"{subject}{result.b} ends at {group.value_b:.4g}, {change} from the {group.value_a:.4g} of "
        f"{result.a}, over {span}; they differ from step {group.since:,} on."
    )


def _difference(group: GroupDifference) -> str:
    return f"{group.group} ({100 * group.ratio - 100:+.1f} %, from step {group.since:,} on)"


def _both_powers(group: GroupDifference) -> str:
    a, b = group.exponent_a, group.exponent_b
    return f"{group.group} ({a.value:.3f} against {b.value:.3f})" if a and b else group.group
