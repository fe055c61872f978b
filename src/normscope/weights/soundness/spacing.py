"""Find the rule that the steps of a series follow, and the steps that break it.

Training code saves at equal intervals, or at steps that grow by a factor, or first
one and then the other (Pythia: 0, 1, 2, 4, …, 512, 1000, 2000, …). The rule is
learnt from the steps: the longest stretch with one interval, then the same before and
after it, and factors where no interval repeats. The last checkpoint may come early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from normscope.remarks import Finding
from normscope.weights.soundness.findings import listed

REPEATS = 3  # equal intervals that make a rule
SHARE = 0.5  # of the intervals of a stretch that must follow the rule
ROUNDED = 1.5  # steps: largest deviation from a line less the smallest, of steps that were rounded
JITTER = 0.15  # relative deviation of intervals, if checkpoints are saved by the clock


@dataclass(frozen=True)
class Spacing:
    """The rule that the steps follow, in words, and the findings about steps that break it."""

    rule: str
    findings: tuple[Finding, ...]


def learn_spacing(steps: Sequence[int]) -> Spacing:
    """Find the rule of sorted, distinct steps."""
    rules, findings = _stretch(list(steps), last=True)
    return Spacing(", then ".join(rules) or "no regular spacing", tuple(findings))


def _stretch(steps: list[int], last: bool) -> tuple[list[str], list[Finding]]:
    """Rules and findings of a stretch; `last` if it ends with the last checkpoint of the series."""
    if len(steps) < 3:
        return [], []
    if rounded := _rounded(steps):
        return rounded
    every = _common_interval(steps)
    if every is None:
        return _by_factor(steps) or _by_clock(steps)
    intervals = np.diff(steps)
    equal = np.flatnonzero(intervals == every)
    first, end = int(equal[0]), int(equal[-1]) + 1
    if last and end == len(steps) - 2:
        end += 1  # the interval before the last checkpoint may be shorter; if it is longer, it is a gap
    rules_before, before = _stretch(steps[: first + 1], last=False)
    rules_after, after = _stretch(steps[end:], last)
    found = _on_grid(steps[first : end + 1], every)
    return [*rules_before, f"every {every}", *rules_after], [*before, *found, *after]


def _common_interval(steps: Sequence[int]) -> int | None:
    """The interval that repeats, if it is at least half of the intervals from its first to its last use."""
    intervals = np.diff(steps)
    counts = Counter(intervals.tolist())
    for every, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count < REPEATS:
            return None
        where = np.flatnonzero(intervals == every)
        if count >= SHARE * (where[-1] - where[0] + 1):
            return int(every)
    return None


def _rounded(steps: Sequence[int]) -> tuple[list[str], list[Finding]] | None:
    """The rule of rounded multiples of a fraction, as equal parts of a training give: 333, 667, 1000, …

    Their intervals have two values, which differ by 1. The last checkpoint may come early.
    """
    usual = float(np.median(np.diff(steps)))
    early = steps[-1] - steps[-2] < 0.9 * usual
    points = np.array(steps[:-1] if early else steps)
    if len(points) <= REPEATS + 1 or usual < 2:
        return None
    intervals = np.diff(points)
    places = np.concatenate([[0], np.cumsum(np.ceil(intervals / usual - 0.5))])
    every = float((points[-1] - points[0]) / places[-1])
    single = np.unique(intervals[np.diff(places) == 1])
    off = points - points[0] - every * places
    if len(single) != 2 or single[1] - single[0] != 1 or np.ptp(off) > ROUNDED:
        return None
    missing = sorted({*range(int(places[-1]) + 1)} - {*places.astype(int).tolist()})
    gone = [round(float(points[0] + every * place)) for place in missing]
    return [f"every {every:.4g}, rounded"], [_gap(gone, every, 0.9)] if gone else []


def _on_grid(steps: Sequence[int], every: int) -> list[Finding]:
    """Steps that are missing from the regular grid of a stretch, and steps that are not on it."""
    start, end = steps[0], steps[-1]
    existing = set(steps)
    grid = [point for point in range(start, end, every) if point not in existing]
    off_grid = [step for step in steps[1:-1] if (step - start) % every]
    found = [_displaced(step, every, grid) for step in off_grid]
    taken = {point for step in off_grid for point in grid if abs(point - step) < every}
    missing = [point for point in grid if point not in taken]
    final = [point for point in missing if point > steps[-2]] if (end - start) % every else []
    if inner := [point for point in missing if point not in final]:
        found.append(_gap(inner, every, 0.9))
    if final:
        found.append(_gap(final, every, 0.6))
    return found


def _gap(missing: Sequence[int], every: float, confidence: float) -> Finding:
    evidence = f"checkpoints come every {every:.6g} steps, but {listed(missing)} {_are(missing)} missing"
    return Finding("gap", tuple(missing), evidence, confidence, {"every": every, "missing": len(missing)})


def _are(steps: Sequence[int]) -> str:
    return "is" if len(steps) == 1 else "are"


def _displaced(step: int, every: int, grid: Sequence[int]) -> Finding:
    """The finding about a step off the grid: a wrong label if it replaces a grid step, else only a hint."""
    instead = [point for point in grid if abs(point - step) < every]
    numbers = {"every": every, "missing": len(instead)}
    if instead:
        evidence = f"checkpoints come every {every} steps; there is step {step} instead of {listed(instead)}"
        return Finding("spacing", (step,), evidence, 0.6, numbers)
    return Finding(
        "spacing", (step,), f"checkpoints come every {every} steps; step {step} is extra", 0.2, numbers
    )


def _by_factor(steps: Sequence[int]) -> tuple[list[str], list[Finding]] | None:
    """Steps that grow by one factor, up to rounding; step 0, which does not fit, may come before them."""
    points = np.array([step for step in steps if step > 0], dtype=np.float64)
    if len(points) < 4:
        return None
    factor = _factor(points)
    if factor is None:
        return None
    found = []
    for a, b in pairwise(points):
        times = int(np.rint(np.log(b / a) / np.log(factor)))
        missing = [int(np.rint(a * factor**i)) for i in range(1, times)]
        # Between small steps, rounding hides whether they are one factor apart or two.
        rounded = abs(b - a * factor) <= _slack(a, factor)
        if missing and not rounded and abs(b - a * factor**times) <= _slack(a, factor**times):
            evidence = (
                f"steps grow by a factor of {factor:.3g}, but about {listed(missing)} {_are(missing)} missing"
            )
            found.append(
                Finding("gap", tuple(missing), evidence, 0.8, {"factor": factor, "missing": len(missing)})
            )
    return [f"by a factor of {factor:.3g}"], found


def _slack(a: float, factor: float) -> float:
    """How far the next step may be off because steps are rounded, or saved a little late."""
    return 0.6 * (1 + factor) + 0.02 * a * factor


def _factor(points: np.ndarray) -> float | None:
    """The factor between most neighbours, from the larger steps, where rounding matters less."""
    ratios = points[1:] / points[:-1]
    guess = float(np.median(ratios[len(ratios) // 2 :]))
    if guess < 1.05:
        return None
    agree = np.abs(points[1:] - guess * points[:-1]) <= np.array([_slack(a, guess) for a in points[:-1]])
    return guess if agree.mean() >= 0.7 else None


def _by_clock(steps: Sequence[int]) -> tuple[list[str], list[Finding]]:
    """Intervals that vary a little, as if saved by the clock; one of double length is a gap."""
    intervals = np.diff(steps)[:-1].astype(np.float64)
    if len(intervals) < 5:
        return [], []
    usual = float(np.median(intervals))
    if np.mean(np.abs(intervals - usual) <= JITTER * usual) < 0.8:
        return [], []
    found = []
    for a, interval in zip(steps[1:], intervals[1:], strict=False):
        if interval >= 1.8 * usual:
            around = (int(a), int(a + interval))
            missing = f"there is none between {around[0]} and {around[1]}"
            evidence = f"checkpoints come about every {usual:.0f} steps, but {missing}"
            found.append(Finding("gap", around, evidence, 0.6, {"every": usual, "interval": interval}))
    return [f"about every {usual:.0f}"], found
