"""The law of every group (layer, role, tensor) of a run, and which groups differ from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.errors import SeriesError
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular
from normscope.theory.laws.growth import GrowthFit, fit_series
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import Array
from normscope.theory.measures.series_sources import Selection, Source, load
from normscope.theory.measures.time_series import Series
from normscope.words import joined

LEVEL = 0.05


@dataclass(frozen=True)
class Group:
    """One group: its law, its exponent with interval, its growth, and whether it differs from the rest.

    `growth` is the last value over the first; `p_value` belongs to "this exponent is like the others'",
    corrected for the number of groups (Holm).
    """

    group: str
    law: str
    decided: bool
    r2: float
    exponent: float | None
    low: float | None
    high: float | None
    growth: float
    p_value: float | None
    differs: bool


@dataclass(frozen=True)
class GroupFits(Tabular):
    """The fits of all groups of one run, side by side."""

    by: str
    measure: str
    groups: tuple[Group, ...]
    fits: tuple[GrowthFit, ...]
    failed: dict[str, str]
    sentences: tuple[str, ...]

    @property
    def table(self) -> Table:
        """One row a group."""
        names = ("group", "law", "decided", "r2", "exponent", "low", "high", "growth", "p_value", "differs")
        return Table.from_rows(names, [[getattr(group, name) for name in names] for group in self.groups])


def fit_groups(
    source: Source,
    selection: Selection = Selection(by="layer"),
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> GroupFits:
    """Fit every group of a run and compare their exponents.

    A group differs when its exponent lies outside what the spread of the other groups and its own
    interval explain, at 5 % after Holm's correction.
    """
    series = load(source, selection)
    fits, failed = _fit_all(series, seed, progress)
    groups = _compare(fits, {s.name: s for s in series})
    sentences = _sentences(groups, failed, selection.by)
    return GroupFits(selection.by, selection.measure or "norm", groups, tuple(fits), failed, sentences)


def _fit_all(
    series: Sequence[Series], seed: int, progress: Progress
) -> tuple[list[GrowthFit], dict[str, str]]:
    fits, failed = [], {}
    for done, one in enumerate(series):
        progress(done, len(series), one.name)
        try:
            fits.append(fit_series(one, seed=seed))
        except SeriesError as error:
            failed[one.name] = str(error)
    if not fits:
        raise SeriesError(f"no group can be fitted; the first says: {next(iter(failed.values()))}")
    return fits, failed


def _compare(fits: Sequence[GrowthFit], series: dict[str, Series]) -> tuple[Group, ...]:
    p_values = exponent_p_values([fit.exponent for fit in fits])
    return tuple(_group(fit, series[fit.series], p) for fit, p in zip(fits, p_values, strict=True))


def _group(fit: GrowthFit, series: Series, p_value: float | None) -> Group:
    best, exponent = fit.law(), fit.exponent
    finite = series.values[np.isfinite(series.values)][np.argsort(series.steps[np.isfinite(series.values)])]
    return Group(
        group=fit.series,
        law=fit.best,
        decided=fit.decided,
        r2=best.r2,
        exponent=exponent.value if exponent else None,
        low=exponent.low if exponent else None,
        high=exponent.high if exponent else None,
        growth=float(finite[-1] / finite[0]) if finite[0] else float("inf"),
        p_value=p_value,
        differs=p_value is not None and p_value < LEVEL,
    )


def exponent_p_values(exponents: Sequence[Interval | None]) -> list[float | None]:
    """For each exponent, Holm's p-value of "it is one of the others"; None where there is none.

    The others give a centre (their median) and a spread (from their median deviation); the group's own
    standard error is added to the spread. Student's t with as many degrees of freedom as there are
    others keeps a few groups from condemning one another.
    """
    from scipy.special import stdtr

    there = [(i, exponent) for i, exponent in enumerate(exponents) if exponent is not None]
    if len(there) < 4:
        return [None] * len(exponents)
    values = np.array([exponent.value for _, exponent in there])
    errors = np.array([(exponent.high - exponent.low) / 3.92 for _, exponent in there])
    scores = np.array([_distance(values, errors, i) for i in range(len(values))])
    corrected = holm(2 * stdtr(len(there) - 2, -np.abs(scores)))
    place = {i: p for (i, _), p in zip(there, corrected, strict=True)}
    return [place.get(i) for i in range(len(exponents))]


def _distance(values: Array, errors: Array, place: int) -> float:
    """How many standard deviations one exponent lies from the others' median."""
    others = np.delete(values, place)
    centre = float(np.median(others))
    spread = 1.4826 * float(np.median(np.abs(others - centre)))
    scale = float(np.hypot(max(spread, 1e-3), errors[place]))
    return float((values[place] - centre) / scale)


def holm(p_values: Array) -> list[float]:
    """Holm's step-down correction: valid whatever the dependence between the tests."""
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    stepped = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    corrected = np.empty(len(p_values))
    corrected[order] = stepped
    return [float(p) for p in corrected]


def _sentences(groups: Sequence[Group], failed: dict[str, str], by: str) -> tuple[str, ...]:
    known = [group for group in groups if group.exponent is not None]
    said = []
    if known:
        middle = float(np.median([group.exponent for group in known if group.exponent is not None]))
        said.append(f"{len(groups)} groups by {by}; their exponents have the median {middle:.3f}.")
        said.extend(_odd_ones(known, middle, faster=True))
        said.extend(_odd_ones(known, middle, faster=False))
    if known and all(group.p_value is None for group in known):
        said.append("With fewer than four groups there is no telling which differ from the rest.")
    elif known and not any(group.differs for group in known):
        said.append("No group's exponent differs from the rest (5 %, Holm-corrected).")
    said.extend(f"Left out: {reason}." for reason in failed.values())
    return tuple(said)


def _odd_ones(groups: Sequence[Group], middle: float, faster: bool) -> list[str]:
    odd = [g for g in groups if g.differs and g.exponent is not None and (g.exponent > middle) == faster]
    if not odd:
        return []
    names = joined([f"{g.group} (p = {g.exponent:.3f})" for g in odd[:8]]) + (
        " and others" if len(odd) > 8 else ""
    )
    return [f"Growing by a {'higher' if faster else 'lower'} power than the rest: {names}."]
