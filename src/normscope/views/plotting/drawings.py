"""What `ns.plot` draws of each kind of result: its figures, and a line that states its scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from normscope.anatomy import scope_words
from normscope.errors import UsageError
from normscope.remarks import unsound_sentence
from normscope.run import Run, ScalarRow
from normscope.theory.dynamics.budget import NormBudget, NormBudgets
from normscope.theory.effects.growth_effects import growth_effects
from normscope.theory.forecasts.backtest import Backtest
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.laws.compare import Comparison
from normscope.theory.laws.groups import GroupFits
from normscope.theory.laws.growth import GrowthFit
from normscope.theory.laws.wording import doubt_sentences
from normscope.theory.measures.series_set import SeriesSet, series
from normscope.theory.measures.time_series import Series
from normscope.theory.spectra.spectral_history import history, recorded_histories
from normscope.views.figures import (
    audit,
    backtest,
    budget,
    comparison,
    exponents,
    forecast,
    groups,
    growth,
    training,
)
from normscope.views.figures.network import effects
from normscope.views.figures.spectra.spectra_section import spectral_figures
from normscope.views.figures.sweep import cells, sweep_map
from normscope.views.page.formatting import count, plural, span
from normscope.views.page.page_parts import FigureSpec
from normscope.views.page.side_by_side import side_by_side
from normscope.words import printable


@dataclass(frozen=True)
class Drawing:
    """The figures of a result, the usual one first; `scope` says what they are about.

    `warnings` are what is wrong with the data, and come first.
    """

    scope: str
    figures: Sequence[FigureSpec]
    warnings: Sequence[str] = ()


def _joined(*parts: str) -> str:
    return " · ".join(printable(part) for part in parts if part)


def _scope_words(scope: str) -> str:
    return "the body: without embeddings and output head" if scope == "body" else scope_words(scope)


# -- series and fits -------------------------------------------------------------------


def of_series(found: Series) -> Drawing:
    """The values of one series."""
    if not len(found):
        raise UsageError(f"{found.name} has no points, so there is nothing to draw")
    return Drawing(_series_scope(found), [growth.series_figure(found)], found.warnings)


def _series_scope(found: Series) -> str:
    steps = span(found.steps.tolist())
    return _joined(found.name, _scope_words(found.scope), plural(len(found), "point"), steps)


def of_series_set(found: SeriesSet) -> Drawing:
    """The lines of all groups; a single series is drawn like a `Series`."""
    if len(found) == 1:
        return of_series(found[0])
    steps = [int(step) for one in found for step in one.steps[[0, -1]]]
    scope = _joined(f"{found.measure} by {found.by}", _scope_words(found[0].scope), span(steps))
    return Drawing(scope, [groups.series_figure(found, found.measure, found.by)], found[0].warnings)


def of_run(run: Run) -> Drawing:
    """The norm of a run, what growth does and its spectra; of several stages, one line per stage."""
    stages = run.stages()
    norms = [series(run, stage=stage)[0] for stage in stages] if stages else [series(run)[0]]
    name = str(run.path)
    if len(norms) == 1:
        drawing = of_series(replace(norms[0], name=name))
        found = growth_effects(run, stages[0] if stages else "", norms[0])
        spectra = spectral_figures(recorded_histories(run, stages[0] if stages else ""))
        more = [*(effects.figures(found) if found else ()), *spectra]
        return replace(drawing, figures=[*drawing.figures, *more])
    named = [replace(one, name=stage or "(unnamed)") for one, stage in zip(norms, stages, strict=True)]
    scope = _joined(name, _scope_words(norms[0].scope), plural(len(stages), "stage"))
    warnings = [f"{one.name}: {warning}" for one in named for warning in one.warnings]
    return Drawing(scope, [groups.series_figure(named, "norm", "stage")], warnings)


def of_spectra(found: Any) -> Drawing:
    """The spectra of a series; of several stages, those of the last."""
    if not found.rows:
        raise UsageError("these spectra have no rows, so there is nothing to draw")
    stage = found.rows[-1].stage
    rows = [row for row in found.rows if row.stage == stage]
    kinds = dict.fromkeys(row.kind for row in rows)
    each = {kind: history(kind, rows, found.tensors) for kind in kinds}
    steps = span([row.step for row in rows])
    scope = _joined(f"spectra of the {', '.join(kinds)}", stage, steps)
    return Drawing(scope, spectral_figures({kind: one for kind, one in each.items() if one}), found.notes[:3])


def of_growth_fit(fit: GrowthFit) -> Drawing:
    """The points with the laws, and the residuals."""
    figures = [growth.fit_figure(fit.data, fit), growth.residual_figure(fit.data, fit)]
    return Drawing(_series_scope(fit.data), figures, fit.data.warnings)


def of_group_fits(found: GroupFits) -> Drawing:
    """The exponents of the groups, if they have any, and their growth."""
    data = found.fits[0].data
    steps = [step for fit in found.fits for step in (fit.first_step, fit.last_step)]
    scope = _joined(f"{found.measure} by {found.by}", _scope_words(data.scope), span(steps))
    known = any(group.exponent is not None for group in found.groups)
    figures = [exponents.exponent_figure(found)] if known else []
    return Drawing(scope, [*figures, exponents.growth_figure(found)], data.warnings)


def of_forecast(found: Forecast) -> Drawing:
    """The past and the forecast."""
    figure = forecast.forecast_figure(found.past, found)
    return Drawing(_series_scope(found.past), [figure], found.past.warnings)


def of_backtest(found: Backtest) -> Drawing:
    """Forecasts from earlier steps, and what came."""
    steps = span([found.rows[0].known, found.to])
    scope = _joined(found.unit or "norm", _scope_words(found.scope), found.series, steps)
    return Drawing(
        scope, [backtest.backtest_figure(found)], [text] if (text := unsound_sentence(found.findings)) else []
    )


def of_comparison(found: Comparison) -> Drawing:
    """The values of both runs, and their exponents."""
    steps = span([found.first_step, found.last_step])
    scope = _joined(
        f"{found.measure} by {found.by}",
        *dict.fromkeys(_scope_words(scope) for scope in (found.scope_a, found.scope_b)),
        f"{found.a} and {found.b}",
        f"{steps} of both",
    )
    figures = [comparison.value_figure(found)]
    if comparison.has_exponents(found):
        figures.append(comparison.exponent_figure(found))
    return Drawing(scope, figures, doubt_sentences(found))


def of_norm_budget(found: NormBudget, warnings: Sequence[str] = ()) -> Drawing:
    """The budget of every interval."""
    words = _joined(found.group, _scope_words(found.scope), span([found.since, found.until]))
    return Drawing(words, [budget.interval_figure(found)], warnings)


def of_norm_budgets(found: NormBudgets) -> Drawing:
    """The budget of every group; that of a single group by interval."""
    warnings = found.messages[:1] if unsound_sentence(found.findings) else ()
    if len(found) == 1:
        return of_norm_budget(found[0], warnings)
    steps = span([step for one in found for step in (one.since, one.until)])
    words = _joined(f"norm budget by {found.by}", _scope_words(found.scope), steps)
    return Drawing(words, [budget.group_figure(found, found.by)], warnings)


# -- audits and the lab --------------------------------------------------------------------


def of_audit(found: Any) -> Drawing:
    """The findings along the steps."""
    figure = audit.finding_figure(list(found.table), found.sound, found.checkpoints)
    return Drawing(_joined(str(found.source), plural(found.checkpoints, "checkpoint")), [figure])


def of_train_result(found: Any) -> Drawing:
    """Loss and norm beside each other, and every recorded scalar."""
    rows = (ScalarRow(**_named(row, ScalarRow)) for row in found.table)
    figures = training.scalar_figures(rows, training.LAB_SCALARS)
    if not figures:
        raise UsageError(f"{found.run} contains no scalar that changes, so there is nothing to draw")
    scope = _joined(str(found.run), f"{count(found.parameters)} parameters", f"{count(found.steps)} steps")
    single = [replace(figure, key=name, height=380) for name, figure in figures.items()]
    norm = "body_norm" if "body_norm" in figures else "norm"
    pair = [figures[name] for name in ("loss", norm) if name in figures]
    both = [replace(side_by_side("training", *pair), height=380)] if len(pair) == 2 else []
    return Drawing(scope, [*both, *single])


def _named(row: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(kind)}


def of_sweep_result(found: Any) -> Drawing:
    """The maps of norm change and loss beside each other, and each alone; curves if there is no map."""
    scope = _joined(str(found.out), plural(len(found.cells), "cell"))
    if not found.cells:
        raise UsageError(f"the sweep in {found.out} has no finished cell, so there is nothing to draw")
    if not sweep_map.is_map(found.cells):
        return Drawing(scope, [cells.curve_figure(found.cells)])
    figures = []
    for i, (rest, grid) in enumerate(sweep_map.grids(found.cells).items()):
        figures += [_numbered(figure, i, rest) for figure in _map_figures(grid)]
    return Drawing(scope, figures)


def _map_figures(grid: sweep_map.SweepGrid) -> list[FigureSpec]:
    """Norm change and loss together if both were measured, then each map alone."""
    changes = [
        replace(sweep_map.change_figure(grid, [measure]), key=measure.key, note=sweep_map.READING)
        for measure in grid.measured(sweep_map.CHANGES)
    ]
    loss = [sweep_map.loss_figure(grid)] if grid.measured([sweep_map.LOSS]) else []
    both = [side_by_side("maps", changes[0], loss[0])] if changes and loss else []
    return [*both, *changes, *loss]


def _numbered(figure: FigureSpec, i: int, rest: str) -> FigureSpec:
    """The figure of the i-th grid of a sweep that varies further fields."""
    title = f"{figure.title} ({rest})" if rest else figure.title
    return replace(figure, key=f"{figure.key}-{i + 1}" if i else figure.key, title=title)
