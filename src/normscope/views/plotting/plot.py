"""`ns.plot`: draw any result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind
from normscope.theory.measures.series_set import series
from normscope.theory.measures.series_sources import opened_run
from normscope.views.page.page_parts import FigureSpec
from normscope.views.plotting import automata_drawings, drawings, network_drawings
from normscope.views.plotting.drawings import Drawing
from normscope.views.plotting.figure_file import check_ending, is_image, write_figure
from normscope.views.plotting.standalone import Look, standalone
from normscope.views.plotting.step_axis import TITLES
from normscope.words import joined, printable

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Results are recognised by the name of their class: importing some of the classes would load torch.
DRAWINGS: Mapping[str, Callable[[Any], Drawing]] = {
    "Ablations": network_drawings.of_ablations,
    "Audit": drawings.of_audit,
    "Automaton": automata_drawings.of_automaton,
    "Backtest": drawings.of_backtest,
    "Comparison": drawings.of_comparison,
    "Forecast": drawings.of_forecast,
    "GroupFits": drawings.of_group_fits,
    "GrowthFit": drawings.of_growth_fit,
    "Heads": network_drawings.of_heads,
    "Homogeneity": network_drawings.of_homogeneity,
    "LookAhead": network_drawings.of_look_ahead,
    "NetworkAutomaton": automata_drawings.of_network_automaton,
    "NormBudget": drawings.of_norm_budget,
    "NormBudgets": drawings.of_norm_budgets,
    "Run": drawings.of_run,
    "SaturatedTask": network_drawings.of_saturated_task,
    "Saturation": network_drawings.of_saturation,
    "SaturationAndHeads": network_drawings.of_saturation_and_heads,
    "Series": drawings.of_series,
    "SeriesSet": drawings.of_series_set,
    "Similarity": network_drawings.of_similarity,
    "Spectra": drawings.of_spectra,
    "SweepResult": drawings.of_sweep_result,
    "TrainResult": drawings.of_train_result,
}
Y_AXES = ("linear", "log")
MIN_WIDTH, MAX_WIDTH = 200, 10_000  # pixels: room for a title, and what a browser can draw


def plot(
    result: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    show: str | None = None,
    x_axis: Literal["linear", "sqrt", "log"] = "linear",
    y_axis: Literal["linear", "log"] = "linear",
    width: int = 900,
) -> Figure:
    """Draw a result of normscope with plotly; with `path`, also write the figure to a file.

    `result` is what `series`, `fit_growth`, `fit_groups`, `forecast`, `backtest`, `compare`, `norm_budget`,
    `saturation`, `heads`, `saturation_and_heads`, `layer_similarity`, `ablations`, `saturated_task`,
    `homogeneity`, `looks_ahead`, `automaton`, `audit`, `spectrum`, `train` or `sweep` returns. For a run,
    and for every other source that `series` takes, the norm is drawn. The name of the file ends in .html,
    or, with the extra `figures`, in .svg, .pdf or .png.

    Some results have several figures: `show` chooses one, and the error for an unknown name lists them.
    `x_axis` scales the steps, `y_axis` the values; `width` is in pixels.

    >>> import normscope as ns
    >>> figure = ns.plot(ns.fit_growth("t5-base"), show="residuals", x_axis="sqrt")
    >>> figure.layout.xaxis.title.text, figure.layout.yaxis.title.text
    ('step, square-root scale', 'measured − law')
    """
    width = check_integer("width", width, MIN_WIDTH, MAX_WIDTH)
    if show is not None:
        check_kind("show", show, str, "the name of a figure")
    target = None if path is None else check_ending(path)
    drawing = _drawing(result)
    spec, shown = _choose(drawing, show)
    look = Look(shown, _checked(x_axis, "x_axis", tuple(TITLES), spec), y_axis, width)
    _checked(y_axis, "y_axis", Y_AXES, spec)
    about = [*map(printable, drawing.warnings), drawing.scope]
    figure = standalone(spec, about, look)
    if target is not None:
        still = standalone(_without_hidden(spec), about, look) if is_image(target) else figure
        write_figure(still, target)
    return figure


def _drawing(result: Any) -> Drawing:
    if isinstance(result, str | Path | tuple | list):
        with opened_run(result) as run:
            return drawings.of_run(run) if run else drawings.of_series_set(series(result))
    for kind in type(result).__mro__:
        if kind.__module__.partition(".")[0] == "normscope" and kind.__name__ in DRAWINGS:
            return DRAWINGS[kind.__name__](result)
    raise UsageError(
        f"cannot draw a {type(result).__module__}.{type(result).__qualname__}; ns.plot draws "
        f"{joined(DRAWINGS)}, and the norm of a path, a bundled name or (steps, values)"
    )


def _choose(drawing: Drawing, show: str | None) -> tuple[FigureSpec, str | None]:
    """The figure asked for, and the set of its traces to show."""
    found: dict[str, tuple[FigureSpec, str | None]] = {}
    for spec in drawing.figures:
        if not spec.buttons:
            sets = {trace.get("set") for trace in spec.traces}
            found.setdefault(spec.key, (spec, next(iter(sets - {None}), None)))
        for button in spec.buttons:
            found.setdefault(button.key, (spec, button.key))
    if show is None:
        return next(iter(found.values()))
    if show not in found:
        raise UsageError(f"this result has no figure {show!r}; it has {joined(found)}")
    return found[show]


def _without_hidden(spec: FigureSpec) -> FigureSpec:
    """The figure without the traces that only a click in the legend would show."""
    return replace(spec, traces=[trace for trace in spec.traces if trace.get("visible") != "legendonly"])


def _checked(scale: str, option: str, known: tuple[str, ...], spec: FigureSpec) -> str:
    """The scale of an axis; UsageError if it is unknown or does not apply to the figure."""
    if scale not in known:
        raise UsageError(f"{option} must be one of {', '.join(known)}; got {scale!r}")
    if scale != "linear" and not (spec.step_axis if option == "x_axis" else spec.log_y):
        raise UsageError(f"{option}={scale!r} does not apply to this figure; leave it out")
    return scale
