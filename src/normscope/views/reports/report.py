"""The HTML report: one file that says how the norm grew, where and why, and on which data this rests."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from normscope._version import __version__
from normscope.errors import UsageError
from normscope.run import Run
from normscope.theory.answer import Results, run_results, series_results
from normscope.theory.measures.measures import group
from normscope.theory.measures.run_summary import summarise
from normscope.theory.measures.series_sources import (
    Selection,
    Source,
    load_one,
    refuse_measure,
    run_path,
    stage_findings,
)
from normscope.theory.measures.time_series import Series
from normscope.theory.places.recorded_norms import has_only_norms, recorded_norm, recorded_scopes
from normscope.theory.places.run_places import is_sweep
from normscope.theory.spectral_fits import spectral_fits
from normscope.theory.training_results import training_results
from normscope.views.figures import budget, direction, forecast, groups, growth, measures, training
from normscope.views.figures.network import effects, heads, saturation
from normscope.views.figures.spectra import spectra_section
from normscope.views.page.formatting import plural, size, span
from normscope.views.page.offline_file import check_place
from normscope.views.page.page import provenance, write
from normscope.views.page.page_parts import Page, Section, Stage
from normscope.views.reports import advice, alarms, doubts, first_screen, inventory, summary, sweep
from normscope.words import printable

MEASURED_TABLES = ("saturation", "head", "attention", "activation")
SHOWN_ELSEWHERE = ("unknown_names", "notes", "complete", "differing")


def report(
    source: Source, output: str | os.PathLike[str] = "report.html", *, measure: str | None = None
) -> Path:
    """Write one HTML file about a run, a sweep's folder, a training log or a bundled series (`t5-base`).

    `source` is as in `series`, or the folder that `sweep` wrote; `output` is the file to write. `measure`
    names the column of a log that has several; the report of a run has all measures.

    >>> ns.report("t5-base", "t5.html").name
    't5.html'
    """
    check_place(output)
    if isinstance(source, Run):
        refuse_measure(source, measure, "the report of a run has all measures")
        return _write(source, output)
    if isinstance(source, str | os.PathLike):
        if is_sweep(Path(source)):
            refuse_measure(source, measure, "the report of a sweep has no columns")
            return write(sweep.sweep_page(Path(source), _written(str(source))), output)
        path = run_path(Path(source) if isinstance(source, os.PathLike) else source)
        if path is not None:
            refuse_measure(source, measure, "the report of a run has all measures")
            with Run(path) as opened:
                return _write(opened, output)
    return _write(load_one(source, Selection(measure)), output)


def _write(source: Run | Series, output: str | os.PathLike[str]) -> Path:
    if isinstance(source, Series):
        return write(series_page(source), output)
    if Path(output).resolve() == source.path.resolve():
        raise UsageError(
            f"the report would overwrite the run file {source.path}; choose another name with -o"
        )
    return write(run_page(source), output)


def run_page(run: Run) -> Page:
    """The page of a run file: every section for which it has data."""
    names = _stages(run)
    if not names:
        raise UsageError(
            f"{run.path} contains no measurements yet: run 'normscope scan SOURCE --run {run.path}'"
        )
    weights, only_norms = set(run.stages()), has_only_norms(run)
    stages = [_stage(run, name, name in weights) for name in names] if not only_norms else [_training(run)]
    source = run.meta.get("source") or next((row.source for row in run.checkpoints()), run.path)
    return Page(
        title=_title(bool(weights), only_norms),
        subject=printable(_name(source)),
        subtitle=_subtitle(run),
        stages=stages,
        closing=[inventory.section(run)] if weights else [],
        warnings=_warnings(run),
        lists=doubts.lists(run),
        provenance=provenance(_meta(run), **_written(str(run.path))),
    )


def _title(weights: bool, only_norms: bool) -> str:
    if only_norms:
        return "How the norm grows"
    return "How the parameters grow" if weights else "How close the network is to saturation"


def series_page(data: Series) -> Page:
    """The page of a series of norms, which allows growth, laws and forecast only."""
    results = series_results(data)
    sections = [
        *advice.sections(results.advice),
        growth.section(data, results.fit, results.no_fit),
        *_budget(results),
        *_forecast(results),
    ]
    return Page(
        title="How the norm grows",
        subject=printable(_name(data.name)),
        subtitle=f"{plural(len(data), 'point')} · {span(data.steps.tolist())}",
        stages=[
            Stage(
                "",
                *summary.summary(results.highlights),
                sections,
                doubts.doubts(data.findings),
                scope=first_screen.scope_sentence(data.scope),
                soundness=first_screen.ONLY_NORMS,
            )
        ],
        closing=[],
        provenance=_written(data.name),
    )


def _budget(results: Results) -> list[Section]:
    return [budget.section(results.budget, results.layer_budgets)] if results.budget else []


def _forecast(results: Results) -> list[Section]:
    if results.forecast:
        return [forecast.section(results.norms, results.forecast)]
    return [Section("forecast", "Forecast", [results.no_forecast])] if results.no_forecast else []


def _stages(run: Run) -> list[str]:
    """Every stage in which anything was measured."""
    if has_only_norms(run):
        return [""]
    tables = " UNION ".join(f"SELECT stage FROM {name}" for name in MEASURED_TABLES)
    return sorted({*run.stages(), *(row[0] for row in run.query(tables))})


def _stage(run: Run, name: str, has_weights: bool) -> Stage:
    found_wrong = doubts.doubts(stage_findings(run, name))
    if not has_weights:
        found = _network_sections(run, name)
        rest = [replace(section, sentences=section.sentences[1:]) for section in found]
        first = [sentence for part in found for sentence in part.sentences[:1]]
        shown = effects.section(run, name, None)
        return Stage(printable(name), first, [], [*([shown] if shown else []), *rest], found_wrong)
    total, layers, roles = (group(run, by=by, stage=name) for by in ("total", "layer", "role"))
    results = run_results(run, name, total)
    sections: Sequence[Section | None] = [
        *advice.sections(results.advice),
        alarms.section(run, name),
        growth.section(results.norms, results.fit, results.no_fit),
        effects.section(run, name, results.norms),
        groups.section(layers, roles, results.layer_fits),
        direction.section(total, layers),
        spectra_section.section(run, name, spectral_fits(run, name, results.fit)),
        *_budget(results),
        *_forecast(results),
        measures.section(run, name),
        *_network_sections(run, name),
        training.section(run, name),
        Section("tables", "Tables", (), [inventory.by_step(total)]),
    ]
    kept = [section for section in sections if section is not None]
    checkpoints = [row for row in run.checkpoints() if row.stage == name]
    return Stage(
        printable(name),
        *summary.summary(results.highlights),
        kept,
        found_wrong,
        labels={row.step: row.label for row in checkpoints if row.label},
        scope=first_screen.scope_sentence(total.scope, run.tensors()),
        soundness=first_screen.soundness(
            len(checkpoints), stage_findings(run, name), run.meta.get("complete")
        ),
    )


def _training(run: Run) -> Stage:
    """A training run whose weights were not scanned: its norms, what the network showed, and its curves."""
    results = training_results(run)
    found: Sequence[Section | None] = [
        *advice.sections(results.advice),
        growth.section(results.norms, results.fit, results.no_fit),
        effects.section(run, "", results.norms),
        *_forecast(results),
        *_network_sections(run, ""),
        training.section(run, ""),
    ]
    kept = [section for section in found if section is not None]
    return Stage(
        "",
        *summary.summary(results.highlights),
        kept,
        doubts.doubts(run.findings()),
        scope=first_screen.scope_sentence(results.norms.scope, run.tensors()),
        soundness=first_screen.soundness(0, run.findings()),
    )


def _network_sections(run: Run, stage: str) -> list[Section]:
    """What was measured by running the network."""
    found = (saturation.section(run, stage), heads.section(run, stage))
    return [section for section in found if section is not None]


def _subtitle(run: Run) -> str:
    measured = (group(run, scope="all", stage=stage).steps.tolist() for stage in run.stages())
    steps = sorted({step for several in measured for step in several})
    if has_only_norms(run):
        steps = recorded_norm(run, recorded_scopes(run)[0]).steps.tolist()
    elif not steps:
        steps = [row[0] for row in run.query("SELECT DISTINCT step FROM saturation ORDER BY step")]
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    saved = len(run.checkpoints())
    parts = [plural(saved, "checkpoint")] if saved else [plural(len(steps), "recorded step")] if steps else []
    if len(steps) > 1:
        parts.append(span(steps))
    if tensors:
        parts.append(f"{size(sum(tensor.numel for tensor in tensors))} parameters".replace("B ", "billion "))
    if measured_on := str(run.meta.get("time") or "")[:10]:
        parts.append(f"measured {measured_on}")
    return " · ".join(parts)


def _meta(run: Run) -> dict[str, object]:
    """The run's meta without the entries that other parts of the page show."""
    return {key: value for key, value in run.meta.items() if key not in SHOWN_ELSEWHERE}


def _warnings(run: Run) -> list[str]:
    """The notes of the summary as sentences; a name at the beginning of one keeps its spelling."""
    names = {each.label for each in run.left_out()} | {tensor.name for tensor in run.tensors()}
    return [_sentence(line, names) for line in summarise(run).warnings]


def _sentence(text: str, names: Set[str]) -> str:
    first = text.partition(" ")[0].rstrip(",:")
    kept = text if first in names else text[:1].upper() + text[1:]
    return f"{printable(kept).rstrip('.')}."


def _name(source: object) -> str:
    """The last two parts of a path or of a hub name, or the text itself."""
    first = source[0] if isinstance(source, list) and source else source
    return "/".join(Path(str(first)).parts[-2:]).lstrip("/") or str(first)


def _written(source: str) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"report of": source, "report written": now, "report written by": f"normscope {__version__}"}
