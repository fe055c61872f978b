"""Measures that plugins recorded: one figure per measure, by layer."""

from __future__ import annotations

from dataclasses import replace

from normscope._spectrum_rows import SPECTRAL_MEASURES
from normscope.errors import SeriesError
from normscope.run import Run
from normscope.theory.measures.series_set import series
from normscope.views.figures.groups import series_figure
from normscope.views.page.page_parts import FigureSpec, Section, balanced
from normscope.words import joined, printable

READING = "A layer's value is the mean over its tensors that have one."


def section(run: Run, stage: str) -> Section | None:
    """A figure for each plugin measure of the run; None if there are none; spectra have their own section."""
    shown = SPECTRAL_MEASURES if run.query("SELECT 1 FROM spectrum WHERE stage = ? LIMIT 1", (stage,)) else ()
    found = {name: _figure(run, name, stage) for name in run.measure_names() if name not in shown}
    missing = [printable(name) for name, figure in found.items() if figure is None]
    figures = [figure for figure in found.values() if figure is not None]
    sentences = [READING] if figures else []
    if missing:
        sentences.append(f"No value in this stage: {joined(missing)}.")
    return Section("measures", "Measures of plugins", sentences, balanced(figures)) if found else None


def _figure(run: Run, name: str, stage: str) -> FigureSpec | None:
    try:
        found = series(run, name, by="layer", stage=stage)
    except SeriesError:
        return None
    return replace(series_figure(found, name, "layer"), key=f"measure-{name}")
