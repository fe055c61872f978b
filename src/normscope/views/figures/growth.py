"""How the norm grows: the measured points, the fitted laws through them, and what the laws leave over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from normscope.theory.laws.growth import GrowthFit, LawFit
from normscope.theory.laws.laws import LAWS
from normscope.theory.measures.time_series import Series
from normscope.views.figures import palette
from normscope.views.page.formatting import clean, drawn, formula, label, number, percent, values
from normscope.views.page.page_parts import Block, Figure, Grid, Section, Trace

PAPER_LAW = "sqrt"  # the law the paper claims; always shown
ALWAYS_DRAWN = (PAPER_LAW, "linear")  # the others wait in the legend
CURVE_POINTS = 160


def section(series: Series, fit: GrowthFit | None, reason: str = "") -> Section:
    """The norm against the step with every law; `reason` says why there is none."""
    if fit is None:
        return Section("growth", "How it grows", [clean(reason)] if reason else (), [_figure(series, None)])
    blocks: list[Block] = [_figure(series, fit), _residuals(series, fit), _laws(fit)]
    return Section(
        "growth", "How it grows", [*map(formula, fit.sentences[1:]), *map(clean, fit.notes)], blocks
    )


def _figure(series: Series, fit: GrowthFit | None) -> Figure:
    laws = [_law(fit, law) for law in fit.laws] if fit else []
    note = (
        "Points are measured, lines are fitted. On the √ axis the law a·√t + b is a straight line."
        if fit
        else ""
    )
    return Figure(
        "growth",
        _title(series, fit),
        [*laws[:0:-1], _points(series), *laws[:1]],
        {"yaxis": {"title": {"text": "norm ‖θ‖"}}, "legend": {"traceorder": "reversed"}},
        note,
        height=460,
        step_axis=True,
        log_y=True,
        wide=True,
    )


def _title(series: Series, fit: GrowthFit | None) -> str:
    first, last = number(series.values[0]), number(series.values[-1])
    if len(series) == 1:
        return f"The norm is {first} at step {series.steps[0]:,}"
    move = f"The norm goes from {first} to {last}"
    if fit is None:
        return move
    law = fit.law()
    if fit.decided:
        return f"{move}, best described by {formula(law.formula)} (R² {law.r2:.5f})"
    return f"{move}; {formula(law.formula)} describes it (R² {law.r2:.5f}), and other laws do as well"


def _points(series: Series) -> Trace:
    kept = drawn(len(series))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": series.steps[kept].tolist(),
        "y": values(series.values[kept]),
        "name": "measured",
        "marker": {"color": palette.INK, "opacity": 0.6, "size": 7 if len(kept) < 60 else 5},
        "hovertemplate": "step %{customdata:,}<br>norm %{y:.6g}<extra>measured</extra>",
    }


def _law(fit: GrowthFit, law: LawFit) -> Trace:
    """The best law stands out; the others are thin."""
    best, name = law.name == fit.best, label(formula(law.formula))
    steps = _grid(fit.first_step, fit.last_step)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": steps.tolist(),
        "y": values(fit.curve(steps, law.name)),
        "name": name,
        "visible": True if best or law.name in ALWAYS_DRAWN else "legendonly",
        "line": {
            "color": _colour(fit, law.name),
            "width": 3 if best else 1.5,
            "dash": "solid" if best else "dash",
        },
        "hovertemplate": f"step %{{customdata:,.0f}}<br>%{{y:.6g}}<extra>{name}<br>R² {law.r2:.5f}</extra>",
    }


def _colour(fit: GrowthFit, name: str) -> str:
    return palette.ACCENT if name == fit.best else palette.law(list(LAWS).index(name))


def _grid(first: int, last: int) -> NDArray[np.float64]:
    """Steps that draw a smooth curve on a linear, a square-root and a logarithmic axis alike."""
    root = np.linspace(first**0.5, last**0.5, CURVE_POINTS // 2) ** 2
    log = np.geomspace(max(first, 1), max(last, 2), CURVE_POINTS // 2)
    return np.unique(np.rint(np.clip(np.concatenate([root, log]), first, last)))


def _residuals(series: Series, fit: GrowthFit) -> Figure:
    names = list(dict.fromkeys([fit.best, *fit.candidates[:3], PAPER_LAW, "linear"]))
    known = [name for name in names if any(law.name == name for law in fit.laws)]
    kept = drawn(len(series))
    steps, heights = series.steps[kept], series.values[kept]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": steps.tolist(),
            "y": values(heights - fit.curve(steps, name), 4),
            "name": label(formula(fit.law(name).formula)),
            "visible": "legendonly" if name == "linear" != fit.best else True,
            "line": {
                "color": _colour(fit, name),
                "width": 2.5 if name == fit.best else 1.5,
            },
            "hovertemplate": "step %{customdata:,}<br>%{y:+.4g}<extra>"
            + label(formula(fit.law(name).formula))
            + "</extra>",
        }
        for name in known
    ]
    layout = {"yaxis": {"title": {"text": "measured − law"}, "zeroline": True}}
    note = "A law that holds leaves noise around zero; a law that does not leaves a bow, however high its R²."
    return Figure(
        "residuals", "What each law leaves over", traces, layout, note, height=260, step_axis=True, wide=True
    )


def _laws(fit: GrowthFit) -> Grid:
    rows = [
        (
            law.name,
            formula(law.formula),
            ", ".join(f"{name} = {number(value)}" for name, value in law.params.items()),
            f"{law.r2:.5f}".replace("-", "−"),
            number(law.aicc),
            number(law.delta, 4),
            "–" if law.holdout is None else percent(law.holdout),
        )
        for law in fit.laws
    ]
    note = (
        "R² and AICc are those of plain least squares. ΔAICc belongs to the robust fit that decides: "
        "lower is better, under 2 is no difference. “Held out” is the error in predicting the last fifth "
        "from the rest, as a share of the growth."
    )
    columns = ("law", "formula", "parameters", "R²", "AICc", "ΔAICc", "held out")
    marked = next((i for i, law in enumerate(fit.laws) if law.name == fit.best), None)
    return Grid("laws", "The laws, best first", columns, rows, note, marked=marked)
