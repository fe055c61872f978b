"""The HTML report: one file that answers how the norm grew, where, why, and from what it is known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from normscope._version import __version__
from normscope.errors import SeriesError, UsageError
from normscope.run import Run
from normscope.theory.dynamics.budget import norm_budget
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.laws.growth import GrowthFit, fit_series
from normscope.theory.measures.measures import group, series
from normscope.theory.measures.run_summary import summarise
from normscope.theory.measures.series_sources import is_run_file, load_one
from normscope.theory.measures.time_series import REFERENCES, Series
from normscope.views.figures import (
    alarms,
    budget,
    direction,
    exponents,
    forecast,
    groups,
    growth,
    heads,
    saturation,
    training,
)
from normscope.views.page import inventory, summary, sweep
from normscope.views.page.formatting import clean, count, plural, size
from normscope.views.page.page import check_place, provenance, write
from normscope.views.page.page_parts import Page, Section, Stage

SHOWN_ELSEWHERE = ("unknown_names", "notes", "complete")
Source = Run | Series | str | os.PathLike[str]


def report(run: Source, output: str | os.PathLike[str] = "report.html") -> Path:
    """Write the report of a run file, of a CSV series or of a reference series such as `t5-base`."""
    check_place(output)
    if isinstance(run, (Run, Series)):
        return _write(run, output)
    path = Path(run)
    if sweep.is_sweep(path):
        return write(sweep.sweep_page(path, _written(str(path))), output)
    if not path.exists() and str(run) in REFERENCES:
        return _write(load_one(str(run)), output)
    if path.is_file() and not is_run_file(path) and path.suffix.lower() == ".csv":
        return _write(load_one(path), output)
    with Run(path) as opened:
        return _write(opened, output)


def _write(source: Run | Series, output: str | os.PathLike[str]) -> Path:
    if isinstance(source, Series):
        return write(series_page(source), output)
    if Path(output).resolve() == source.path.resolve():
        raise UsageError(
            f"the report would overwrite the run file {source.path}; choose another name with -o"
        )
    return write(run_page(source), output)


def run_page(run: Run) -> Page:
    """Everything a run file holds, as a page."""
    names = _stages(run)
    if not names:
        raise UsageError(
            f"{run.path} holds no measurements yet: run 'normscope scan SOURCE --run {run.path}'"
        )
    weights = set(run.stages())
    stages = [_stage(run, name, name in weights) for name in names]
    source = run.meta.get("source") or next((row.source for row in run.checkpoints()), run.path)
    return Page(
        title="How the parameters grow" if weights else "How close the network is to saturation",
        subject=clean(_name(source)),
        subtitle=_subtitle(run),
        stages=stages,
        closing=[inventory.section(run)] if weights else [],
        warnings=[_sentence(line) for line in summarise(run).warnings],
        provenance=provenance(_made(run), **_written(str(run.path))),
    )


def series_page(data: Series) -> Page:
    """A bare series of norms, as a page: growth, laws and forecast; nothing else is known."""
    fit, reason = _fit(data)
    sections = [growth.section(data, fit, reason), *_published(data), forecast.section(data, None)]
    kept = [section for section in sections if section is not None]
    return Page(
        title="How the norm grows",
        subject=clean(_name(data.name)),
        subtitle=f"{plural(len(data), 'point')} · {_span(data.steps.tolist())}",
        stages=[Stage("", summary.sentences(data, fit), summary.facts(data, fit, None), kept)],
        closing=[],
        provenance=_written(data.name),
    )


def _published(data: Series) -> list[Section]:
    """The budget of a reference series whose cosines were published too."""
    return [budget.section(norm_budget(data.name)[0])] if data.name == "t5-base" else []


def _stages(run: Run) -> list[str]:
    """Every stage that anything was measured in."""
    tables = " UNION ".join(f"SELECT stage FROM {name}" for name in ("weight", "saturation", "head"))
    return [row[0] for row in run.query(f"{tables} ORDER BY stage")]


def _stage(run: Run, name: str, weighed: bool) -> Stage:
    if not weighed:
        found = _measured(run, name)
        rest = [replace(part, sentences=part.sentences[1:]) for part in found]
        return Stage(clean(name), [said for part in found for said in part.sentences[:1]], [], rest)
    total, layers, roles = (group(run, by=by, stage=name) for by in ("total", "layer", "role"))
    norms = _norms(run, name)
    fit, reason = _fit(norms)
    sections: Sequence[Section | None] = [
        alarms.of_run(run, name),
        growth.section(norms, fit, reason),
        groups.section(layers, roles, exponents.fits(run, name, len(norms), len(layers.groups))),
        direction.section(total, layers),
        budget.of_run(run, name),
        forecast.section(norms, Rates.of_run(run, name)),
        *_measured(run, name),
        training.section(run, name),
        Section("tables", "Tables", (), [inventory.by_step(total)]),
    ]
    kept = [section for section in sections if section is not None]
    return Stage(clean(name), summary.sentences(norms, fit), summary.facts(norms, fit, total), kept)


def _measured(run: Run, stage: str) -> list[Section]:
    """What was found by running the network."""
    return [part for part in (saturation.of_run(run, stage), heads.of_run(run, stage)) if part is not None]


def _norms(run: Run, stage: str) -> Series:
    found = series(run, "norm", stage=stage)
    if not found:
        raise SeriesError(f"{run.path} holds no finite norm in stage {stage!r}; scan its checkpoints again")
    return replace(found[0], name="The norm")


def _fit(data: Series) -> tuple[GrowthFit | None, str]:
    """The growth law, or why there is none."""
    try:
        return fit_series(data), ""
    except SeriesError as error:
        return None, f"No growth law: {error}."


def _subtitle(run: Run) -> str:
    steps = [row[0] for row in run.query("SELECT DISTINCT step FROM weight ORDER BY step")]
    if not steps:
        steps = [row[0] for row in run.query("SELECT DISTINCT step FROM saturation ORDER BY step")]
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    saved = len(run.checkpoints())
    parts = [plural(saved, "checkpoint")] if saved else [plural(len(steps), "recorded step")] if steps else []
    if len(steps) > 1:
        parts.append(_span(steps))
    if tensors:
        parts.append(f"{size(sum(tensor.numel for tensor in tensors))} parameters".replace("B ", "billion "))
    return " · ".join(parts)


def _made(run: Run) -> dict[str, object]:
    """The run's meta without what other parts of the page show."""
    return {key: value for key, value in run.meta.items() if key not in SHOWN_ELSEWHERE}


def _sentence(text: str) -> str:
    return f"{clean(text[:1].upper() + text[1:]).rstrip('.')}."


def _span(steps: list[int]) -> str:
    return f"steps {count(min(steps))} to {count(max(steps))}"


def _name(source: object) -> str:
    """The last two parts of a path or of a hub's name, or the text itself."""
    first = source[0] if isinstance(source, list) and source else source
    return "/".join(Path(str(first)).parts[-2:]).lstrip("/") or str(first)


def _written(source: str) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"report of": source, "report written": now, "report written by": f"normscope {__version__}"}
