"""Where the norm is going: twice as far as the run went, with its interval and its resting place."""

from __future__ import annotations

from normscope.errors import NormscopeError
from normscope.theory.dynamics.forecast import Forecast, forecast_series
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.measures.time_series import Series
from normscope.views.figures import palette
from normscope.views.page.formatting import clean, count, drawn, number, values
from normscope.views.page.page_parts import Figure, Section, Trace

FEWEST_POINTS = 8
AHEAD = 2  # the horizon, in lengths of the run so far
METHODS = {
    "dynamics": "By the recursion fitted to the run, with the learning rate and weight decay it ended with.",
    "laws": "By the growth laws that fit; nothing was recorded of learning rate and weight decay.",
}


def section(series: Series, rates: Rates | None) -> Section | None:
    """The forecast; None for a run too short to have one."""
    if len(series) < FEWEST_POINTS:
        return None
    try:
        found = forecast_series(series, int(series.steps[-1]) * AHEAD, recorded=rates)
    except NormscopeError:
        return None
    said = [clean(sentence) for sentence in (*found.sentences, *found.notes)]
    return Section("forecast", "Where it is going", said, [_figure(series, found)])


def _figure(series: Series, found: Forecast) -> Figure:
    title = f"At step {count(found.to)} the norm is expected at {number(found.value)}"
    interval = f"95 % interval {number(found.low)} to {number(found.high)}"
    traces = [*_band(found), _line(found), _past(series), *_rest(series, found)]
    return Figure(
        "forecast",
        f"{title}, {interval}",
        traces,
        {"yaxis": {"title": {"text": "norm ‖θ‖"}}},
        METHODS[found.method],
        step_axis=True,
        log_y=True,
        wide=True,
    )


def _ahead(found: Forecast, name: str) -> tuple[list[int], list[float | None]]:
    """The curve, beginning at the last measured point."""
    steps = [found.now, *(int(step) for step in found.curve["step"] if isinstance(step, int))]
    heights = [found.value_now, *(value for value in found.curve[name] if isinstance(value, float))]
    return steps, values(heights)


def _band(found: Forecast) -> list[Trace]:
    edge = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    (steps, low), (_, high) = _ahead(found, "low"), _ahead(found, "high")
    filled = {"fill": "tonexty", "fillcolor": "@band", "name": "95 % interval", "showlegend": True}
    return [{**edge, "x": steps, "y": low}, {**edge, "x": steps, "y": high, **filled}]


def _line(found: Forecast) -> Trace:
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


def _past(series: Series) -> Trace:
    kept = drawn(len(series))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": series.steps[kept].tolist(),
        "y": values(series.values[kept]),
        "name": "measured",
        "marker": {"color": palette.INK, "opacity": 0.6, "size": 5},
        "hovertemplate": "step %{customdata:,}<br>norm %{y:.6g}<extra>measured</extra>",
    }


def _rest(series: Series, found: Forecast) -> list[Trace]:
    """The equilibrium norm, where there is one within sight of the figure."""
    rest = found.equilibrium
    if rest is None or rest.norm is None or not found.value / 4 < rest.norm < found.value * 4:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [int(series.steps[0]), found.to],
            "y": values([rest.norm, rest.norm]),
            "name": f"equilibrium {number(rest.norm)}",
            "line": {"color": palette.RADIAL, "width": 1.5, "dash": "dash"},
            "hovertemplate": "equilibrium %{y:.5g}<extra></extra>",
        }
    ]
