"""The findings of fits and comparisons, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from normscope.anatomy import of_scope, scope_words
from normscope.remarks import unsound_sentence
from normscope.words import joined, some

if TYPE_CHECKING:
    from normscope.theory.laws.compare import Comparison, GroupDifference
    from normscope.theory.laws.groups import GroupFit


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
    sentences.extend(_without_law(groups))
    if len(known) > 1 and all(group.p_value is None for group in known):
        sentences.append("Fewer than four groups: too few to say which stand out from the others.")
    elif len(known) > 1 and not any(group.differs for group in known):
        sentences.append(f"{_range(known)} stands out from the spread of the others (5 %, Holm-corrected).")
    sentences.extend(f"Left out: {reason}." for reason in failed.values())
    return tuple(sentences)


def _without_law(groups: Sequence[GroupFit]) -> list[str]:
    """For how many groups no law holds: their exponents describe, and explain nothing."""
    count = sum(group.verdict == "none" for group in groups)
    if not count:
        return []
    which = "the group" if len(groups) == 1 else f"{count} of {len(groups)} groups"
    return [f"No law can be claimed for {which}; an exponent only describes a curve there."]


def _overview(count: int, by: str, median: float, whose: str) -> str:
    if count == 1:
        return f"1 group{whose} by {by} with exponent {median:.3f}."
    return f"{count} groups{whose} by {by}; the median of their exponents is {median:.3f}."


def _range(groups: Sequence[GroupFit]) -> str:
    """Between which values the exponents are that are known, as the beginning of a sentence."""
    told = sorted(group.exponent for group in groups if group.exponent is not None and group.tells)
    if len(told) < 2:
        return "No group's exponent"
    return f"Their exponents range from {told[0]:.3f} to {told[-1]:.3f}; none"


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
    elif any(group.p_value is not None for group in result.groups):
        sentences.append("No exponent differs between the two (5 %, Holm-corrected).")
    else:
        sentences.append("Exponents were not compared: no group has one in both.")
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
    change = _change(group.ratio)
    return (
        f"{subject}{result.b} ends at {group.value_b:.4g}, {change} from the {group.value_a:.4g} of "
        f"{result.a}, over {span}; they differ from step {group.since:,} on."
    )


def _difference(group: GroupDifference) -> str:
    return f"{group.group} ({_change(group.ratio)}, from step {group.since:,} on)"


def _change(ratio: float) -> str:
    """A ratio as a change in per cent; beyond a hundredfold as a factor."""
    return f"{100 * ratio - 100:+.1f} %" if abs(ratio) < 100 else f"a factor {ratio:.3g}"


def _both_powers(group: GroupDifference) -> str:
    a, b = group.exponent_a, group.exponent_b
    return f"{group.group} ({a.value:.3f} against {b.value:.3f})" if a and b else group.group
