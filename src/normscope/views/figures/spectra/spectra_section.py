"""The section of spectra: what was measured, its laws, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normscope.run import Run
from normscope.theory.laws.growth import GrowthFit
from normscope.theory.spectra.spectral_history import (
    GROWTH,
    HEAD_KINDS,
    UPDATE,
    WEIGHTS,
    SpectralHistory,
    recorded_histories,
)
from normscope.views.figures.spectra.density_ridges import ridge_figure
from normscope.views.figures.spectra.direction_counts import directions_figure
from normscope.views.figures.spectra.sigma_by_layer import sigma_figure
from normscope.views.figures.spectra.spectrum_maps import head_map, role_map
from normscope.views.page.formatting import formula, number, plural
from normscope.views.page.page_parts import FigureSpec, Section, SectionPart, TableSpec
from normscope.words import joined

ORDER = (WEIGHTS, UPDATE, GROWTH, *HEAD_KINDS)


def section(run: Run, stage: str, laws: Sequence[GrowthFit] = ()) -> Section | None:
    """Figures, laws and a table of the last step; None if no spectra were measured."""
    histories = recorded_histories(run, stage)
    found = {kind: histories[kind] for kind in sorted(histories, key=_order)}
    if not found:
        return None
    parts: list[SectionPart] = [*spectral_figures(found)]
    parts += [_laws(laws)] if laws else []
    parts += [_last_step(each) for kind, each in found.items() if kind == WEIGHTS]
    return Section("spectra", "Spectra", _sentences(found), parts)


def spectral_figures(found: Mapping[str, SpectralHistory]) -> list[FigureSpec]:
    """Every figure for which there are spectra, the usual one first."""
    figures: list[FigureSpec | None] = []
    if (weights := found.get(WEIGHTS)) is not None:
        figures += [sigma_figure(weights), ridge_figure(weights), role_map(weights)]
    change = found.get(GROWTH) or found.get(UPDATE)
    figures += [directions_figure(change)] if change is not None else []
    figures.append(head_map(found))
    return [figure for figure in figures if figure is not None]


def _order(kind: str) -> tuple[int, str]:
    return ORDER.index(kind) if kind in ORDER else len(ORDER), kind


def _sentences(found: Mapping[str, SpectralHistory]) -> list[str]:
    parts = [
        f"{kind} of {plural(len(each.matrices), 'matrix', 'matrices')} at {plural(len(each.steps), 'step')}"
        for kind, each in found.items()
    ]
    rows = [row for each in found.values() for row in each.rows.values()]
    estimates = sum(row.method == "estimate" for row in rows)
    sentences = [f"Singular values of the {joined(parts)}."]
    if estimates:
        sentences.append(
            f"{estimates:,} of {len(rows):,} spectra are estimates: the largest values and the norm are "
            "known to six digits, ranks and densities to about 1 %."
        )
    return sentences


def _laws(laws: Sequence[GrowthFit]) -> TableSpec:
    rows = [
        (
            fit.data.unit or "norm",
            _law(fit),
            f"{fit.law().r2:.5f}".replace("-", "−"),
            *_exponent(fit),
            number(float(fit.data.values[0])),
            number(float(fit.data.values[-1])),
        )
        for fit in laws
    ]
    columns = ("measure", "law", "R²", "exponent", "95 %", "first", "last")
    note = "The norm is that of the whole body; the others are plain means over its matrices."
    return TableSpec("spectral-laws", "By which laws they grow", columns, rows, note)


def _law(fit: GrowthFit) -> str:
    """The law, with a question mark if others fit as well; the closest one if none holds."""
    text = formula(fit.law().formula)
    if fit.verdict == "none":
        return f"none (closest: {text})"
    return text if fit.decided else f"{text} ?"


def _exponent(fit: GrowthFit) -> tuple[str, str]:
    if fit.exponent is None:
        return "–", "–"
    low, high = number(fit.exponent.low, 3), number(fit.exponent.high, 3)
    return number(fit.exponent.value, 3), f"{low} to {high}"


def _last_step(found: SpectralHistory) -> TableSpec:
    columns = ("tensor", "part", "σ₁", "stable rank", "effective rank", "outside the bulk", "α", "method")
    last = [(matrix, found.rows.get((found.steps[-1], matrix))) for matrix in found.matrices]
    rows = [
        (
            matrix.tensor.name,
            matrix.part if matrix.part >= 0 else None,
            row.spectral_norm,
            row.stable_rank,
            row.effective_rank,
            row.outliers,
            row.alpha,
            row.method,
        )
        for matrix, row in last
        if row
    ]
    title = f"Every matrix at step {found.steps[-1]:,}"
    return TableSpec("spectra", title, columns, rows, folded=True)
