"""The forecast of the norm, with its interval and the equilibrium."""

from __future__ import annotations

from normscope.anatomy import of_scope
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.measures.time_series import Series
from normscope.views.figures.lines import axis_title, measured_points
from normscope.views.page import palette
from normscope.views.page.formatting import count, json_numbers, label, number
from normscope.views.page.page_parts import FigureSpec, Section, Trace
from normscope.words import printable

METHODS = {
    "dynamics": "From the norm recursion of each parameter group, under its learning rate and weight decay.",
    "laws": "From growth laws that start at the last value and predicted best inside the known part.",
    "trend": "From the recent trend of the squared norm, with the damping that predicted best.",
    "last value": "The last value, or close to it.",
}


def section(series: Series, found: Forecast) -> Section:
    """The forecast, in sentences and as a figure."""
    sentences = [printable(sentence) for sentence in (*found.sentences, *found.notes)]
    return Section("forecast", "Forecast", sentences, [forecast_figure(series, found)])


def forecast_figure(series: Series, found: Forecast) -> FigureSpec:
    """The past, the expected course with its 95 % interval, and the equilibrium if it is near."""
    unit, whose, value = series.unit or "norm", of_scope(series.scope), number(found.value)
    points = measured_points(series, what=f"{label(unit)}{whose}")
    interval = f"95 % interval {number(found.low)} to {number(found.high)}"
    expected = f"expected at {value}, {interval}" if found.tells else f"not known closely: {interval}"
    return FigureSpec(
        "forecast",
        f"At step {count(found.to)} the {printable(unit)}{whose} is {expected}",
        [*_band(found), _expected(found), points, *_equilibrium(series, found)],
        {"yaxis": {"title": {"text": axis_title(unit, series.scope)}}},
        METHODS[found.method],
        step_axis=True,
        log_y=True,
        wide=True,
    )


def _ahead(found: Forecast, name: str) -> tuple[list[int], list[float | None]]:
    """One column of the forecast, beginning at the last measured point."""
    steps = [found.now, *(int(step) for step in found.curve["step"] if isinstance(step, int))]
    heights = [found.value_now, *(value for value in found.curve[name] if isinstance(value, float))]
    return steps, json_numbers(heights)


def _band(found: Forecast) -> list[Trace]:
    edge = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    (steps, low), (_, high) = _ahead(found, "low"), _ahead(found, "high")
    filled = {"fill": "tonexty", "fillcolor": palette.BAND, "name": "95 % interval", "showlegend": True}
    return [
        {**edge, "x": steps, "y": low, "name": "95 % interval, from"},
        {**edge, "x": steps, "y": high, **filled},
    ]


def _expected(found: Forecast) -> Trace:
    steps, heights = _ahead(found, "value")
    return {
        "type": "scatter",
        "mode": "lines",
        "x": steps,
        "y": heights,
        "name": "expected",
        "line": {"color": palette.ACCENT, "width": 2.5},
        "hovertemplate": "step %{customdata:,}<br>expected %{y:.5g}<extra></extra>",
    }


def _equilibrium(series: Series, found: Forecast) -> list[Trace]:
    """The equilibrium norm as a line; nothing if it is not known or would stretch the figure."""
    rest = found.equilibrium
    if rest is None or rest.norm is None or not rest.known:
        return []
    if not found.value / 4 < rest.norm < found.value * 4:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [int(series.steps[0]), found.to],
            "y": json_numbers([rest.norm, rest.norm]),
            "name": f"equilibrium {number(rest.norm)}",
            "line": {"color": palette.RADIAL, "width": 1.5, "dash": "dash"},
            "hovertemplate": "equilibrium %{y:.5g}<extra></extra>",
        }
    ]
