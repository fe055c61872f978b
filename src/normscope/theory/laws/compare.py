"""Two runs side by side: where they differ, since when, and whether they grow by different powers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from normscope.errors import SeriesError
from normscope.progress import Progress, silent
from normscope.run import Run
from normscope.table import Table, Tabular
from normscope.theory.laws.groups import LEVEL, holm
from normscope.theory.laws.growth import fit_exponent
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import Array
from normscope.theory.measures.series_sources import Selection, Source, load
from normscope.theory.measures.time_series import Series, clean
from normscope.words import joined

_ENOUGH = 5
TOLERANCE = 0.01  # runs closer than this at a step count as equal there


@dataclass(frozen=True)
class GroupDifference:
    """One group in both runs, at the last step they share.

    `ratio` is b over a; `since` the first step from which they stay more than `TOLERANCE` and three
    times their joint noise apart (None: they do not); `p_value` belongs to "both grow by the same
    power", corrected for the number of groups (Holm).
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


@dataclass(frozen=True)
class Comparison(Tabular):
    """Two runs compared over the steps both cover; most different group first."""

    a: str
    b: str
    by: str
    measure: str
    first_step: int
    last_step: int
    groups: tuple[GroupDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    sentences: tuple[str, ...]

    @property
    def table(self) -> Table:
        """One row a group."""
        names = ("group", "a", "b", "ratio", "since", "exponent_a", "exponent_b", "p_value", "differs")
        return Table.from_rows(names, [_row(group) for group in self.groups])

    @property
    def messages(self) -> tuple[str, ...]:
        """What was found."""
        return self.sentences


def _row(group: GroupDifference) -> tuple[str | float | int | bool | None, ...]:
    powers = [e.value if e else None for e in (group.exponent_a, group.exponent_b)]
    head = (group.group, group.value_a, group.value_b, group.ratio, group.since)
    return (*head, *powers, group.p_value, group.differs)


def compare(
    a: Source, b: Source, selection: Selection = Selection(), *, seed: int = 0, progress: Progress = silent
) -> Comparison:
    """Compare two runs (or CSV files, or series) group by group over the steps both cover."""
    left = {series.name: series for series in _load(a, selection)}
    right = {series.name: series for series in _load(b, selection)}
    shared = [name for name in left if name in right]
    if not shared:
        raise SeriesError(
            f"the runs share no group by {selection.by}: one has {_some(left)}, the other {_some(right)}; "
            "compare them with --by total"
        )
    found = []
    for done, name in enumerate(shared):
        progress(done, len(shared), name)
        found.append(_compare_group(left[name], right[name], seed))
    return _comparison(_titles(a, b), selection, found, (left, right))


def _load(source: Source, selection: Selection) -> list[Series]:
    """The series of a source; one alone is called total, whatever its file is called."""
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


def _some(groups: dict[str, Series]) -> str:
    return ", ".join(list(groups)[:3])


def _compare_group(a: Series, b: Series, seed: int) -> tuple[GroupDifference, tuple[int, int]]:
    a, b = clean(a).series, clean(b).series
    steps, left, right = _aligned(a, b)
    difference = GroupDifference(
        group=a.name,
        value_a=float(left[-1]),
        value_b=float(right[-1]),
        ratio=float(right[-1] / left[-1]) if left[-1] else float("nan"),
        since=_since(steps, left, right),
        exponent_a=_exponent(a, seed),
        exponent_b=_exponent(b, seed),
    )
    return difference, (int(steps[0]), int(steps[-1]))


def _aligned(a: Series, b: Series) -> tuple[Array, Array, Array]:
    """Both series at the steps of one of them, the coarser if it has enough, where both are known."""
    if not (len(a) and len(b)):
        raise SeriesError(f"{a.name}: one of the runs has no usable value")
    low, high = max(a.steps[0], b.steps[0]), min(a.steps[-1], b.steps[-1])
    inside = [series.steps[(series.steps >= low) & (series.steps <= high)] for series in (a, b)]
    steps = min(inside, key=len) if min(map(len, inside)) >= _ENOUGH else max(inside, key=len)
    if not len(steps):
        raise SeriesError(
            f"{a.name}: the runs share no steps: one covers {a.steps[0]} to {a.steps[-1]}, "
            f"the other {b.steps[0]} to {b.steps[-1]}"
        )
    left, right = (np.interp(steps, series.steps, series.values) for series in (a, b))
    return steps.astype(np.float64), left, right


def _since(steps: Array, left: Array, right: Array) -> int | None:
    """The first step from which the two stay apart by more than tolerance and noise."""
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-300)
    gap = np.abs(right - left) / scale
    apart = gap > max(TOLERANCE, 3 * float(np.hypot(_roughness(left), _roughness(right))))
    if not apart[-1]:
        return None
    together = np.flatnonzero(~apart)
    return int(steps[together[-1] + 1]) if len(together) else int(steps[0])


def _roughness(values: Array) -> float:
    """Relative noise of a series, from its second differences: smooth curves have almost none."""
    if len(values) < 5:
        return 0.0
    bend = values[2:] - 2 * values[1:-1] + values[:-2]
    scale = float(np.median(np.abs(values)))
    return float(np.median(np.abs(bend))) / (0.6745 * np.sqrt(6.0) * scale) if scale > 0 else 0.0


def _exponent(series: Series, seed: int) -> Interval | None:
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
        measure=selection.measure or "norm",
        first_step=min(span[0] for _, span in found),
        last_step=max(span[1] for _, span in found),
        groups=tuple(groups),
        only_a=tuple(name for name in left if name not in right),
        only_b=tuple(name for name in right if name not in left),
        sentences=(),
    )
    return replace(result, sentences=tuple(_sentences(result)))


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
    return max((exponent.high - exponent.low) / 3.92, 1e-4)


def _sentences(result: Comparison) -> list[str]:
    span = f"steps {result.first_step:,} to {result.last_step:,}"
    if len(result.groups) == 1:
        said = [_one(result.groups[0], result, span)]
    else:
        apart = [group for group in result.groups if group.since is not None]
        said = [f"{len(apart)} of {len(result.groups)} groups by {result.by} differ over {span}."]
        said += [f"Most of all {_phrase(group)}." for group in apart[:1]]
        said += [f"Then {joined([_phrase(group) for group in apart[1:4]])}."] if apart[1:] else []
    powers = [group for group in result.groups if group.differs]
    if powers:
        names = joined([_powers(group) for group in powers[:6]])
        said.append(f"Different powers of the step (5 %, Holm-corrected): {names}.")
    else:
        said.append("No exponent differs between the two (5 %, Holm-corrected).")
    for name, only in ((result.a, result.only_a), (result.b, result.only_b)):
        if only:
            said.append(f"Only in {name}: {', '.join(only[:6])}{' and others' if len(only) > 6 else ''}.")
    return said


def _one(group: GroupDifference, result: Comparison, span: str) -> str:
    if group.since is None:
        return f"{result.a} and {result.b} do not differ by more than {TOLERANCE:.0%} and noise over {span}."
    return (
        f"{result.b} ends at {group.value_b:.4g}, {group.ratio - 1:+.1%} from the {group.value_a:.4g} "
        f"of {result.a}, over {span}; they differ since step {group.since:,}."
    )


def _phrase(group: GroupDifference) -> str:
    return f"{group.group} ({group.ratio - 1:+.1%} since step {group.since:,})"


def _powers(group: GroupDifference) -> str:
    a, b = group.exponent_a, group.exponent_b
    return f"{group.group} ({a.value:.3f} against {b.value:.3f})" if a and b else group.group
