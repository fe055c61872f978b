"""The norm against the step: the measured points, the fitted laws, and their residuals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import of_scope
from normscope.theory.laws.growth import GrowthFit, LawFit
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.laws import PAPER_LAW
from normscope.theory.measures.time_series import Series
from normscope.views.figures.lines import axis_title, measured_points
from normscope.views.page import palette
from normscope.views.page.formatting import (
    MOST_KEPT,
    formula,
    json_numbers,
    label,
    number,
    percent,
    points_to_draw,
)
from normscope.views.page.page_parts import FigureSpec, Section, SectionPart, TableSpec, Trace
from normscope.words import printable, sentence

ALWAYS_DRAWN = (PAPER_LAW, "linear")  # the other laws are hidden until a click in the legend
GRID_STEPS = 160
HEADING = "How it grows"


def section(series: Series, fit: GrowthFit | None, reason: str = "") -> Section:
    """The norm against the step with every law; without a fit, `reason` says why."""
    if fit is None:
        said = [printable(text) for text in (reason, *series.notes) if text]
        figures = [series_figure(series)] if len(series) > 1 else []  # one point is in the first sentence
        return Section("growth", HEADING, said, figures)
    notes = [sentence(printable(note)) for note in fit.notes]
    sentences = [*map(formula, fit.sentences[1:]), *notes]
    parts: list[SectionPart] = [fit_figure(series, fit), residual_figure(series, fit), _laws(fit)]
    return Section("growth", HEADING, sentences, parts)


def series_figure(series: Series) -> FigureSpec:
    """The measured values alone."""
    return _growth_figure(series, _change(series), [_points(series)], "")


def fit_figure(series: Series, fit: GrowthFit) -> FigureSpec:
    """The measured values and every fitted law; the best one is drawn on top."""
    laws = [_law(fit, law) for law in fit.laws]
    note = "Points are measured, lines are fitted. On the √ axis the law a·√t + b is a straight line."
    figure = _growth_figure(series, _fit_title(series, fit), [*laws[::-1], _points(series)], note)
    return replace(figure, numbers=_numbers(series, fit))


def _numbers(series: Series, fit: GrowthFit) -> dict[str, Any]:
    """Every measured point beside the values of the laws there: the curves have steps of their own."""
    kept = points_to_draw(len(series), MOST_KEPT)
    steps = series.steps[kept]
    names = _told_laws(fit)
    curves = [json_numbers(fit.curve(steps, name)) for name in names]
    columns = ["step", "measured", *(formula(fit.law(name).formula) for name in names)]
    rows = zip(steps.tolist(), json_numbers(series.values[kept]), *curves, strict=True)
    return {"columns": columns, "rows": [list(row) for row in rows], "of": len(series)}


def _growth_figure(series: Series, title: str, traces: list[Trace], note: str) -> FigureSpec:
    layout = {
        "yaxis": {"title": {"text": axis_title(series.unit or "norm", series.scope)}},
        "legend": {"traceorder": "reversed"},
    }
    return FigureSpec(
        "growth", title, traces, layout, note, height=460, step_axis=True, log_y=True, wide=True
    )


def _points(series: Series) -> Trace:
    what = f"{label(series.unit or 'norm')}{of_scope(series.scope)}"
    return measured_points(series, 7 if len(series) < 60 else 5, what)


def _change(series: Series) -> str:
    subject = _subject(series)
    first, last = number(series.values[0]), number(series.values[-1])
    if len(series) == 1:
        return f"{subject} is {first} at step {series.steps[0]:,}"
    return f"{subject} goes from {first} to {last}"


def _subject(series: Series) -> str:
    return f"The {printable(series.unit or 'norm')}{of_scope(series.scope)}"


def _fit_title(series: Series, fit: GrowthFit) -> str:
    law = fit.law()
    described = f"{formula(law.formula)} (R² {law.r2:.5f})"
    if fit.decided:
        return f"{_change(series)}, best described by {described}"
    if fit.verdict == "none":
        return f"{_change(series)}; no law holds, {described} is the closest"
    if fit.verdict == "too few points":
        return f"{_change(series)}; {described} is the closest, with too few points for a choice"
    if len(fit.candidates) == 1 or fit.residuals_wander:
        return f"{_change(series)}; {described} fits best, but is not claimed"
    return f"{_change(series)}; {described} fits, and other laws fit as well"


def _law(fit: GrowthFit, law: LawFit) -> Trace:
    """The curve of one law: thick for the best one, thin and dashed for the others."""
    best, name = law.name == fit.best, label(formula(law.formula))
    steps = _grid(fit.first_step, fit.last_step)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": steps.tolist(),
        "y": json_numbers(fit.curve(steps, law.name)),
        "name": name,
        "visible": True if best or law.name in ALWAYS_DRAWN else "legendonly",
        "line": {
            "color": _colour(fit, law.name),
            "width": 3 if best else 1.5,
            "dash": "solid" if best else "dash",
        },
        "hoverinfo": "skip",  # the points are what was measured
    }


def _colour(fit: GrowthFit, name: str) -> str:
    return palette.ACCENT if name == fit.best else palette.law([*laws(), *fit.own_laws].index(name))


def _grid(first: int, last: int) -> NDArray[np.float64]:
    """Steps at which a curve looks smooth on a linear, a square-root and a logarithmic axis."""
    root = np.linspace(first**0.5, last**0.5, GRID_STEPS // 2) ** 2
    log = np.geomspace(max(first, 1), max(last, 2), GRID_STEPS // 2)
    return np.unique(np.rint(np.clip(np.concatenate([root, log]), first, last)))


def residual_figure(series: Series, fit: GrowthFit) -> FigureSpec:
    """Measured minus fitted, for the best laws, the paper's and the straight line."""
    traces = [_residual(series, fit, name) for name in _told_laws(fit)]
    layout = {"yaxis": {"title": {"text": "measured − law"}, "zeroline": True}}
    note = (
        "The residuals of a law that holds scatter around zero; systematic residuals, such as an arc, "
        "mean that it does not hold, however high its R²."
    )
    return FigureSpec(
        "residuals",
        f"Residuals of the laws{_whose(series)}",
        traces,
        layout,
        note,
        height=260,
        step_axis=True,
        wide=True,
    )


def _told_laws(fit: GrowthFit) -> list[str]:
    """The best laws, the paper's and the straight line, as far as they could be fitted."""
    names = dict.fromkeys([fit.best, *fit.candidates[:3], PAPER_LAW, "linear"])
    fitted = {law.name for law in fit.laws}
    return [name for name in names if name in fitted]


def _whose(series: Series) -> str:
    """ ", norm of the body", where the scope is known."""
    return f", {printable(series.unit or 'norm')}{of_scope(series.scope)}" if series.scope else ""


def _residual(series: Series, fit: GrowthFit, law: str) -> Trace:
    kept = points_to_draw(len(series))
    steps, name = series.steps[kept], label(formula(fit.law(law).formula))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": steps.tolist(),
        "y": json_numbers(series.values[kept] - fit.curve(steps, law), 4),
        "name": name,
        "visible": "legendonly" if law == "linear" != fit.best else True,
        "line": {"color": _colour(fit, law), "width": 2.5 if law == fit.best else 1.5},
        "hovertemplate": f"step %{{customdata:,}}<br>%{{y:+.4g}}<extra>{name}</extra>",
    }


def _parameter(law: LawFit, name: str) -> str:
    """One parameter; of one where the search stopped at an end of its range, that it did."""
    at_end = name in law.at_bounds
    return f"{name} at the end of its range" if at_end else f"{name} = {number(law.params[name])}"


def _laws(fit: GrowthFit) -> TableSpec:
    rows = [
        (
            law.name,
            formula(law.formula),
            ", ".join(_parameter(law, name) for name in law.params),
            f"{law.r2:.5f}".replace("-", "−"),
            number(law.aicc),
            number(law.delta, 4),
            "–" if law.holdout is None else percent(law.holdout),
        )
        for law in fit.laws
    ]
    note = (
        "R² and AICc are those of plain least squares. ΔAICc is that of the robust fit that decides: lower "
        "is better, and a difference under 2 does not count. “Held out” is the error of predicting the last "
        "fifth of the points from the others, as a share of the growth."
    )
    columns = ("law", "formula", "parameters", "R²", "AICc", "ΔAICc", "held out")
    marked = next((i for i, law in enumerate(fit.laws) if law.name == fit.best), None)
    return TableSpec("laws", "The laws, best first", columns, rows, note, marked=marked)
