"""Two runs compared: which groups differ, since when, and whether they grow by different powers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from normscope.errors import SeriesError
from normscope.option_checks import check_progress, check_seed
from normscope.progress import Progress, silent
from normscope.remarks import Finding
from normscope.run import Run
from normscope.table import Table, Tabular
from normscope.theory.laws.groups import LEVEL, holm
from normscope.theory.laws.growth import fit_exponent
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import Array
from normscope.theory.laws.wording import comparison_sentences
from normscope.theory.measures.medians import point_noise
from normscope.theory.measures.series_sources import Selection, Source, load, opened_run
from normscope.theory.measures.time_series import Series, clean_series
from normscope.words import joined, some

TOLERANCE = 0.01  # runs closer than this at a step count as equal there
_ENOUGH_STEPS = 5


@dataclass(frozen=True)
class GroupDifference:
    """One group in both runs, at the last step that both cover.

    `ratio` is b over a. `since` is the first step from which they stay apart by more than 1 % and three
    times their joint noise; None if they do not. `p_value` is that of the hypothesis that both grow by the
    same power, corrected for the number of groups (Holm); `differs` if it is below 5 %.

    >>> import normscope as ns
    >>> difference = ns.compare(([0, 10, 20], [1, 2, 3]), ([0, 10, 20], [1, 2, 4])).groups[0]
    >>> round(difference.ratio, 3), difference.since
    (1.333, 20)
    """

    group: str
    value_a: float
    value_b: float
    ratio: float
    since: int | None
    exponent_a: Interval | None
    exponent_b: Interval | None
    p_value: float | None = None
    differs: bool = False


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Two runs compared over the steps that both cover; the group that differs most comes first.

    `scope_a` and `scope_b` say which parameters were measured, where that is known; `findings_a` and
    `findings_b` are what the scans found wrong with the checkpoints.

    >>> import normscope as ns
    >>> comparison = ns.compare("t5-base", "t5-base")
    >>> comparison.sentences[0]
    't5-base (a) and t5-base (b) do not differ by more than 1 % and noise over steps 0 to 524,288.'
    """

    a: str
    b: str
    by: str
    measure: str
    first_step: int
    last_step: int
    groups: tuple[GroupDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    scope_a: str
    scope_b: str
    findings_a: tuple[Finding, ...]
    findings_b: tuple[Finding, ...]
    sentences: tuple[str, ...]

    @property
    def table(self) -> Table:
        """One row per group."""
        names = ("group", "a", "b", "ratio", "since", "exponent_a", "exponent_b", "p_value", "differs")
        return Table.from_rows(names, [_row(group) for group in self.groups])

    @property
    def messages(self) -> tuple[str, ...]:
        """The findings, in sentences."""
        return self.sentences


def _row(group: GroupDifference) -> tuple[str | float | int | bool | None, ...]:
    powers = [e.value if e else None for e in (group.exponent_a, group.exponent_b)]
    head = (group.group, group.value_a, group.value_b, group.ratio, group.since)
    return (*head, *powers, group.p_value, group.differs)


def compare(
    a: Source,
    b: Source,
    *,
    by: str = "total",
    measure: str | None = None,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Comparison:
    """Compare two sources group by group, over the steps that both cover.

    `a` and `b` are sources as in `series`; `by`, `measure`, `scope`, `stage`, `since` and `until` are as
    there. `scope` and `stage` apply to the runs among them. `seed` is the seed of the bootstrap that gives
    the exponents' intervals; `progress` is called with (done, total, group).

    >>> import numpy as np
    >>> import normscope as ns
    >>> steps = np.arange(100, 10_000, 100)
    >>> found = ns.compare((steps, steps**0.5), (steps, steps**0.6)).groups[0]
    >>> round(found.exponent_a.value, 2), round(found.exponent_b.value, 2), found.differs
    (0.5, 0.6, True)
    """
    check_progress(progress)
    seed = check_seed(seed)
    selection = Selection(measure, by, scope, stage, since, until)
    left, right = ({series.name: series for series in side} for side in _load_both(a, b, selection))
    shared = [name for name in left if name in right]
    if not shared:
        raise SeriesError(
            f"the runs share no group by {by}: one has {some(left)}, the other {some(right)}; "
            "compare them by='total'"
        )
    found = []
    for done, name in enumerate(shared):
        progress(done, len(shared), name)
        found.append(_compare_group(left[name], right[name], seed))
    return _comparison(_titles(a, b), selection, found, (left, right))


def _load_both(a: Source, b: Source, selection: Selection) -> tuple[list[Series], list[Series]]:
    """The series of both sources; scope and stage apply to the runs among them."""
    kinds = [_is_run(source) for source in (a, b)]
    of_other = replace(selection, scope=None, stage=None) if any(kinds) else selection
    left, right = (
        _load(source, selection if is_run else of_other) for source, is_run in zip((a, b), kinds, strict=True)
    )
    return left, right


def _is_run(source: Source) -> bool:
    with opened_run(source) as run:
        return run is not None


def _load(source: Source, selection: Selection) -> list[Series]:
    """The series of a source; a single one is called total, so that files of any name can be compared."""
    found = load(source, selection)
    return [replace(found[0], name="total")] if len(found) == 1 else found


def _titles(a: Source, b: Source) -> tuple[str, str]:
    first, second = (_title(source, letter) for source, letter in ((a, "a"), (b, "b")))
    return (first, second) if first != second else (f"{first} (a)", f"{second} (b)")


def _title(source: Source, letter: str) -> str:
    if isinstance(source, Run):
        return str(source.path)
    if isinstance(source, Series):
        return source.name
    return letter if isinstance(source, (list, tuple)) else str(source)


def _compare_group(a: Series, b: Series, seed: int) -> tuple[GroupDifference, tuple[int, int]]:
    a, b = clean_series(a).series, clean_series(b).series
    steps, left, right = _aligned(a, b)
    difference = GroupDifference(
        group=a.name,
        value_a=float(left[-1]),
        value_b=float(right[-1]),
        ratio=float(right[-1] / left[-1]) if left[-1] else float("nan"),
        since=_since(steps, left, right),
        exponent_a=_exponent_if_any(a, seed),
        exponent_b=_exponent_if_any(b, seed),
    )
    return difference, (int(steps[0]), int(steps[-1]))


def _aligned(a: Series, b: Series) -> tuple[Array, Array, Array]:
    """Both series at common steps: those of the one with fewer, if enough, where both are known."""
    if not (len(a) and len(b)):
        raise SeriesError(f"{a.name}: one of the runs has no finite value, so there is nothing to compare")
    low, high = max(a.steps[0], b.steps[0]), min(a.steps[-1], b.steps[-1])
    inside = [series.steps[(series.steps >= low) & (series.steps <= high)] for series in (a, b)]
    steps = min(inside, key=len) if min(map(len, inside)) >= _ENOUGH_STEPS else max(inside, key=len)
    if not len(steps):
        raise SeriesError(
            f"{a.name}: the runs share no steps: one covers {a.steps[0]} to {a.steps[-1]}, "
            f"the other {b.steps[0]} to {b.steps[-1]}; compare runs over the same steps"
        )
    left, right = (np.interp(steps, series.steps, series.values) for series in (a, b))
    return steps.astype(np.float64), left, right


def _since(steps: Array, left: Array, right: Array) -> int | None:
    """The first step from which the two stay apart by more than the tolerance and the noise."""
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-300)
    gap = np.abs(right - left) / scale
    apart = gap > max(TOLERANCE, 3 * float(np.hypot(_roughness(left), _roughness(right))))
    if not apart[-1]:
        return None
    together = np.flatnonzero(~apart)
    return int(steps[together[-1] + 1]) if len(together) else int(steps[0])


def _roughness(values: Array) -> float:
    """Relative noise of a series; 0 for few points."""
    scale = float(np.median(np.abs(values)))
    return point_noise(values) / scale if len(values) >= 5 and scale > 0 else 0.0


def _exponent_if_any(series: Series, seed: int) -> Interval | None:
    try:
        return fit_exponent(series, seed=seed)
    except SeriesError:
        return None


def _comparison(
    titles: tuple[str, str],
    selection: Selection,
    found: Sequence[tuple[GroupDifference, tuple[int, int]]],
    sides: tuple[dict[str, Series], dict[str, Series]],
) -> Comparison:
    groups = _with_p_values([difference for difference, _ in found])
    groups.sort(key=lambda group: -abs(np.log(group.ratio)) if group.ratio > 0 else 0.0)
    left, right = sides
    result = Comparison(
        a=titles[0],
        b=titles[1],
        by=selection.by,
        measure=_measure(left, right),
        first_step=min(span[0] for _, span in found),
        last_step=max(span[1] for _, span in found),
        groups=tuple(groups),
        only_a=tuple(name for name in left if name not in right),
        only_b=tuple(name for name in right if name not in left),
        scope_a=_any(left).scope,
        scope_b=_any(right).scope,
        findings_a=_any(left).findings,
        findings_b=_any(right).findings,
        sentences=(),
    )
    notes = [f"{title}: {note}." for title, side in zip(titles, sides, strict=True) for note in _notes(side)]
    return replace(result, sentences=(*comparison_sentences(result, TOLERANCE), *notes))


def _notes(side: dict[str, Series]) -> tuple[str, ...]:
    """What is to be said about a log: the columns that were taken, and how their points were cleaned."""
    first = _any(side)
    return (*first.notes, *clean_series(first).notes) if first.notes else ()


def _measure(left: dict[str, Series], right: dict[str, Series]) -> str:
    """What was compared; both names if the sources call it differently."""
    units = [_any(side).unit for side in (left, right)]
    return joined(dict.fromkeys(unit for unit in units if unit)) or "value"


def _any(side: dict[str, Series]) -> Series:
    """One series of a source: all have the same unit, scope and findings."""
    return next(iter(side.values()))


def _with_p_values(groups: Sequence[GroupDifference]) -> list[GroupDifference]:
    """Two-sided tests of equal exponents, Holm-corrected over the groups that have both."""
    from scipy.special import ndtr

    pairs = [(i, g.exponent_a, g.exponent_b) for i, g in enumerate(groups)]
    known = [(i, a, b) for i, a, b in pairs if a is not None and b is not None]
    scores = [(a.value - b.value) / np.hypot(_error(a), _error(b)) for _, a, b in known]
    corrected = holm(2 * ndtr(-np.abs(np.array(scores)))) if known else []
    out = list(groups)
    for (i, _, _), p in zip(known, corrected, strict=True):
        out[i] = replace(out[i], p_value=p, differs=p < LEVEL)
    return out


def _error(exponent: Interval) -> float:
    return max(exponent.standard_error, 1e-4)
