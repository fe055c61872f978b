"""How good forecasts of this series would have been: made from earlier steps, compared with what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from normscope.errors import SeriesError
from normscope.option_checks import check_number
from normscope.remarks import Finding
from normscope.table import Table
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.forecasts.forecast import forecast_series
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.forecasts.rate_sources import is_norm, recorded_groups
from normscope.theory.laws.growth import MIN_POINTS
from normscope.theory.laws.laws import Array
from normscope.theory.measures.result_sequence import ResultSequence
from normscope.theory.measures.series_sources import Selection, Source, load_one, opened_run
from normscope.theory.measures.time_series import Series, clean_series

SHARES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class BacktestRow:
    """One forecast of the last value, from what was known at step `known`.

    Errors are relative to the `actual` value: of the forecast, of the last value then, of a·√t + b. `inside`:
    the interval contains the actual value; `covered` is the share of all later points that it contains.

    >>> import normscope as ns
    >>> row = ns.backtest("t5-base")[0]
    >>> row.known, row.inside, abs(row.error) < abs(row.error_last)
    (127500, True, True)
    """

    known: int
    value: float
    low: float
    high: float
    actual: float
    error: float
    error_last: float
    error_sqrt: float
    inside: bool
    covered: float
    method: str


@dataclass(frozen=True, repr=False)
class Backtest(ResultSequence[BacktestRow]):
    """Forecasts of the last step of a series from earlier ones, beside the naive guesses.

    >>> import normscope as ns
    >>> found = ns.backtest("t5-base")
    >>> len(found), found.to, found.table["known"]
    (3, 524288, [127500, 260100, 392700])
    """

    series: str
    to: int
    rows: tuple[BacktestRow, ...]
    unit: str = ""
    scope: str = ""
    findings: tuple[Finding, ...] = ()
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> Table:
        """One row per forecast."""
        names = tuple(BacktestRow.__dataclass_fields__)
        return Table.from_rows(names, [[getattr(row, name) for name in names] for row in self.rows])

    @property
    def messages(self) -> tuple[str, ...]:
        """The sentences, then the notes."""
        return (*self.sentences, *self.notes)

    @property
    def parts(self) -> tuple[BacktestRow, ...]:
        """The forecasts."""
        return self.rows


def backtest(
    source: Source,
    *,
    known: Sequence[float] = SHARES,
    measure: str | None = None,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
) -> Backtest:
    """Forecast the last step of a series from earlier parts of it, and compare.

    `known` are the shares of the steps that each forecast may use. `source`, `measure`, `scope`, `stage`,
    `since` and `until` are as in `forecast`. A forecast sees nothing of the later values; recorded learning
    rates count as a plan that was known.

    >>> import normscope as ns
    >>> found = ns.backtest("t5-base", known=[0.5])
    >>> abs(found[0].error) < 0.03, found[0].inside
    (True, True)
    """
    shares = [check_number("known", share, 0, 1) for share in known]
    selection = Selection(measure, "total", scope, stage, since, until)
    with opened_run(source) as run:
        series = load_one(run or source, selection, 2 * MIN_POINTS)
        steered = is_norm(series, run)
        groups, notes = recorded_groups(run or source, series, scope, stage) if steered else ((), ())
    cleaned = clean_series(series).series
    rows = [row for share in sorted(shares) if (row := _row(cleaned, share, groups)) is not None]
    if not rows:
        raise SeriesError(
            f"{series.name}: {len(cleaned)} points are too few for a backtest; each forecast needs at least "
            f"{MIN_POINTS}, and later points to compare with"
        )
    to, said = int(cleaned.steps[-1]), (*series.warnings, *_sentences(rows, cleaned))
    told = (*series.notes, *notes)
    return Backtest(series.name, to, tuple(rows), series.unit, series.scope, series.findings, said, told)


def _row(series: Series, share: float, groups: Sequence[RateGroup]) -> BacktestRow | None:
    steps = series.steps
    early = steps <= steps[0] + share * (steps[-1] - steps[0])
    if early.sum() < MIN_POINTS or early.all():
        return None
    known = replace(series, steps=steps[early], values=series.values[early], findings=())
    found = forecast_series(known, int(steps[-1]), groups=groups)
    actual = float(series.values[-1])
    if not actual:
        raise SeriesError(f"{series.name} ends at 0, which no relative error can be taken of")
    return BacktestRow(
        known=found.now,
        value=found.value,
        low=found.low,
        high=found.high,
        actual=actual,
        error=found.value / actual - 1,
        error_last=found.naive["last"] / actual - 1,
        error_sqrt=found.naive["sqrt"] / actual - 1,
        inside=found.low <= actual <= found.high,
        covered=_covered(found, steps[~early].astype(np.float64), series.values[~early]),
        method=found.method,
    )


def _covered(found: Forecast, steps: Array, values: Array) -> float:
    """The share of later points inside the interval."""
    at, *ends = (np.asarray(found.curve[name], dtype=np.float64) for name in ("step", "low", "high"))
    low, high = (np.interp(steps, at, end) for end in ends)
    return float(np.mean((values >= low) & (values <= high)))


def _sentences(rows: Sequence[BacktestRow], series: Series) -> list[str]:
    mine, last, root = (
        float(np.median([abs(getattr(row, name)) for row in rows]))
        for name in ("error", "error_last", "error_sqrt")
    )
    inside, to = sum(row.inside for row in rows), int(series.steps[-1])
    sentences = [
        f"{series.subject} at step {to:,}, forecast from earlier steps: median error {mine:.1%}; "
        f"the last value is off by {last:.1%}, a·√t + b by {root:.1%}.",
        f"The 95 % interval contains the value that came in {inside} of {len(rows)} forecasts.",
    ]
    if mine > 1.05 * min(last, root):
        better = "the last value" if last <= root else "a·√t + b"
        sentences.append(f"Here {better} would have been the better guess: do not rely on these forecasts.")
    return sentences
