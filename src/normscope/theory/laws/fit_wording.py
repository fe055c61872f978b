"""The findings of a fit, in sentences: the choice, what would settle it, the exponent, the paper's law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from normscope.theory.laws.evidence import isolated
from normscope.theory.laws.fit_parts import FittedPart
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.law_choice import Choice, Verdict
from normscope.theory.laws.laws import EXPONENTS, PAPER_LAW, Array, Law
from normscope.theory.laws.separation import SAME_R2
from normscope.words import joined, some


@dataclass(frozen=True)
class Told:
    """What the sentences are about: the subject, the laws with their R², the choice and the exponent.

    `phi` is the autocorrelation of neighbouring residuals of the best law.
    """

    name: str
    laws: Mapping[str, Law]
    r2: Mapping[str, float]
    choice: Choice
    exponent: Interval | None
    no_exponent: str
    phi: float | None

    @property
    def best(self) -> str:
        """The best law with its formula and R²."""
        name = self.choice.best
        return f"{name} ({self.laws[name].formula}, R² {self.r2[name]:.5f})"


def growth_sentences(told: Told, part: FittedPart, falls: bool) -> tuple[str, ...]:
    """The choice, what would settle it, the exponent, and how well the paper's law fits."""
    if told.choice.verdict == "none":
        parts = [_none(told, part), _what_would_help(told.choice, part), _descriptions(told)]
    else:
        parts = [_choice(told, part, falls), _what_would_settle(told.choice)]
    parts += [_exponent(told), _paper(told)]
    return tuple(sentence for sentence in parts if sentence)


def _choice(told: Told, part: FittedPart, falls: bool) -> str:
    choice, name, best = told.choice, told.name, told.best
    if not choice.judged:
        return f"{name}: too few points to choose a law; {best} is closest."
    if choice.decided:
        return _claim(told, falls)
    if choice.doubt is not None and choice.doubt.reason == "schedule":
        return (
            f"{name}: {best} fits best, but a learning rate that falls to zero by the end of the run would "
            "give the same curve: without the recorded rates no law is claimed."
        )
    if choice.doubt is not None and choice.doubt.reason == "two lines":
        where = f"a bend near step {round(choice.doubt.ours):,}"
        return (
            f"{name}: {best} fits best, but two straight lines with {where} fit as well: it is not claimed."
        )
    if choice.doubt is not None:
        return (
            f"{name}: {best} fits best, but the {part.varying} changed on the way, and a law in plain steps "
            "does not account for that: it is not claimed."
        )
    others = joined([f"{n} (R² {told.r2[n]:.5f})" for n in choice.candidates[1:]])
    if not choice.exact:
        closest = f" The closest other: {others}." if others else ""
        return (
            f"{name}: {best} fits best, but is not claimed: neighbouring residuals are almost equal "
            f"(autocorrelation {told.phi or 0:.2f}), so either it does not hold, or the noise wanders."
            f"{closest}"
        )
    if choice.better_predictor:
        return f"{name}: {best} fits best, but is not claimed: {others} predicts the last fifth better."
    fits = "fits exactly" if choice.perfect else "fits best"
    return f"{name}: {best} {fits}, but the data cannot distinguish it from {others}."


def _claim(told: Told, falls: bool) -> str:
    verb = "falls" if falls else "grows"
    exactly = " exactly, to rounding" if told.choice.perfect else ""
    meaning = "" if falls else f": {told.laws[told.choice.best].meaning}"
    return f"{told.name} {verb} by the law {told.best}{exactly}{meaning}."


def _none(told: Told, part: FittedPart) -> str:
    """That no law is claimed, and why, with the numbers."""
    doubt, start = told.choice.doubt, f"{told.name}: none of these laws holds"
    assert doubt is not None
    if doubt.reason == "reset":
        before, after = part.jump
        step = f"step {part.resets[-1]:,}"
        return f"{start} for the whole series: it jumps at {step}, from {before:.6g} to {after:.6g}."
    if doubt.reason == "turn":
        turned = f"it turns at step {round(doubt.ours):,}, at {doubt.theirs:.6g}"
        return f"{start}: {turned}, and laws of the step only rise or only fall."
    if doubt.reason == "bend":
        where = f"bends near step {round(doubt.ours):,}"
        return f"{start}: the curve {where}, which {told.best} describes and no law explains."
    if doubt.reason == "last value":
        errors = f"{doubt.ours:.1%} against {doubt.theirs:.1%} of the range"
        return (
            f"{told.name}: none of these laws can be claimed: the closest, {told.best}, predicts the last "
            f"fifth no better than the last value before it does (an error of {errors})."
        )
    return (
        f"{start}: the residuals of {told.best}, the closest, are systematic, not random "
        f"(autocorrelation {doubt.ours:.2f})."
    )


def _descriptions(told: Told) -> str:
    """The laws that describe the series about equally well, where they do."""
    close = [name for name in told.choice.hardly_differ if name in told.choice.candidates]
    if len(close) < 2:
        return ""
    return f"As descriptions, {joined(close)} hardly differ (R² within {SAME_R2:g})."


def _what_would_help(choice: Choice, part: FittedPart) -> str:
    if part.resets:
        last = part.resets[-1]
        if part.begin:
            return f"The fits are of the points from step {last:,} on; --since {last} asks about these alone."
        return f"What follows is too short, or constant; --until {last - 1} asks about the part before."
    if choice.doubt is not None and choice.doubt.reason == "bend":
        step = round(choice.doubt.ours)
        if part.recorded and not part.varying:
            return f"The recorded rates are constant there; --since {step} asks about the later part."
        return (
            f"A learning rate that changed there would explain it: --since {step} asks about the later part, "
            "recorded rates (lr, weight_decay) about the whole."
        )
    if part.varying:
        return f"The {part.varying} changed on the way, and no law in its clock holds either."
    if part.recorded:
        return (
            "The recorded rates are constant here, so no schedule shaped it; --since and --until ask about "
            "a part."
        )
    return (
        "Recorded rates (lr, weight_decay) would show whether a schedule shaped it; --since and --until ask "
        "about a part."
    )


def _what_would_settle(choice: Choice) -> str:
    """How far a run would have to continue to distinguish the laws that remain."""
    if not choice.judged or not choice.exact or choice.better_predictor or choice.decided or choice.doubt:
        return ""
    reached = {name: step for name, step in choice.separating.items() if step is not None}
    never = [name for name in choice.separating if name not in reached]
    parts = []
    if reached:
        step = max(reached.values())
        parts.append(f"A run to about step {step:,} would distinguish {joined(reached)} from {choice.best}.")
    if never:
        parts.append(f"A run 100 times as long would not distinguish {joined(never)} from {choice.best}.")
    return " ".join(parts)


def _exponent(told: Told) -> str:
    if told.exponent is None:
        return told.no_exponent
    found = told.exponent
    ends = [end for end, at in zip(EXPONENTS, (found.low, found.high), strict=True) if np.isclose(end, at)]
    cut = f" (cut off at {ends[0]:g}, the end of the range searched)" if ends else ""
    if not found.tells:
        both = f"{found.low:.{found.digits}f} to {found.high:.{found.digits}f}"
        return f"The free exponent is not known: its 95 % interval, {both}{cut}, is wider than its value."
    return f"Free exponent p = {found}{cut}."


def _paper(told: Told) -> str:
    choice, r2 = told.choice, told.r2
    if PAPER_LAW not in r2 or not choice.judged:
        return ""
    sentence = f"The square-root law of Merrill et al. (2021), a·√t + b, has R² {r2[PAPER_LAW]:.5f}"
    if choice.best == PAPER_LAW:
        return f"{sentence} and is {'the law chosen' if choice.decided else 'the closest'}."
    if PAPER_LAW in choice.candidates:
        return f"{sentence}{' and remains possible' if choice.verdict != 'none' else ''}."
    rivals: tuple[str, ...] = ("sqrt-linear", "power")
    better = [name for name in rivals if name in choice.candidates] or [choice.best]
    return f"{sentence}; {joined(better)} fit{'s' * (len(better) == 1)} better."


def fit_notes(verdict: Verdict, steps: Array, values: Array) -> list[str]:
    """What was left out of a fit, and which points the choice does not rest on."""
    return [*_warnings(values), *_reservations(verdict, steps, values)]


def _warnings(values: Array) -> list[str]:
    if (values < 0).any():
        return ["some values are negative, which a norm cannot be: laws of the squared norm were left out"]
    if (values == 0).any():
        return ["some values are zero: laws of the squared norm were left out"]
    return []


def _reservations(verdict: Verdict, steps: Array, values: Array) -> list[str]:
    """Which points the choice does not rest on, or would better not rest on."""
    notes = []
    if verdict.begin:
        before = int(steps[verdict.begin])
        notes.append(
            f"the first {verdict.begin} points, before step {before:,}, follow another curve (a warm-up?): "
            "the choice rests on the later points"
        )
    if verdict.otherwise:
        notes.append(
            f"from step {verdict.since:,} on {joined(verdict.otherwise)} "
            f"fit{'s' * (len(verdict.otherwise) == 1)} as well: if training warmed up "
            f"until then, that is the better answer (fit again with since={verdict.since})"
        )
    outliers = [f"{int(steps[i]):,}" for i in np.flatnonzero(isolated(values))]
    if outliers:
        notes.append(
            f"isolated outliers at step {some(outliers, 5)} are ignored in the choice and the exponent, but "
            "count in R², AICc and the parameters"
        )
    return notes
