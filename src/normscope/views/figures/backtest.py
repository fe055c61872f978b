"""Forecasts from earlier steps beside the value that came."""

from __future__ import annotations

from normscope.theory.forecasts.backtest import Backtest
from normscope.views.figures.lines import axis_title
from normscope.views.page import palette
from normscope.views.page.formatting import count, json_numbers, number
from normscope.views.page.page_parts import FigureSpec, Trace


def backtest_figure(found: Backtest) -> FigureSpec:
    """The forecast of the last value by the step up to which the series was known, with its interval."""
    came = found.rows[0].actual
    held = f"{sum(row.inside for row in found.rows)} of {len(found.rows)} intervals"
    return FigureSpec(
        "backtest",
        f"{held} for step {count(found.to)} contain what came, {number(came)}",
        [_forecasts(found), _actual(found, came)],
        {"yaxis": {"title": {"text": axis_title(found.unit or "norm", found.scope)}}},
        "Each point is a forecast that knew nothing after its step; bars are 95 % intervals.",
        step_axis=True,
        wide=True,
    )


def _forecasts(found: Backtest) -> Trace:
    rows = found.rows
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [row.known for row in rows],
        "y": json_numbers([row.value for row in rows]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": json_numbers([row.high - row.value for row in rows]),
            "arrayminus": json_numbers([row.value - row.low for row in rows]),
        },
        "name": "forecast",
        "marker": {"color": palette.ACCENT, "size": 9},
        "hovertemplate": "known up to step %{customdata:,}<br>forecast %{y:.5g}<extra></extra>",
    }


def _actual(found: Backtest, came: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [found.rows[0].known, found.to],
        "y": json_numbers([came, came]),
        "name": "what came",
        "line": {"color": palette.RADIAL, "width": 1.5, "dash": "dash"},
        "hovertemplate": "came %{y:.5g}<extra></extra>",
    }
