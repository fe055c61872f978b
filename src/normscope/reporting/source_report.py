"""The page of any source in one call: what was never scanned is scanned first, and several are compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope.errors import NormscopeError, UsageError
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Parts, Progress, named_parts, silent
from normscope.remarks import Finding
from normscope.reporting.source_kinds import (
    CHECKPOINTS,
    SERIES,
    SWEEP,
    KnownSource,
    as_one_series,
    known_source,
)
from normscope.reporting.source_measuring import MeasuredSource, MoreMeasurements, Reading, measure_source
from normscope.run import Run
from normscope.theory.measures.series_sources import Source, source_findings
from normscope.theory.measures.time_series import Series
from normscope.views.page.offline_file import check_place

ONE_SERIES = "the {} files or folders are checkpoints of one place, and so one series"


@dataclass(frozen=True)
class ReportConfig:
    """How a page is made.

    `measure` is the column of a log, `run` the run file of checkpoints that are scanned, `extras` what is
    measured beside the norms, `reading` how a series is read.
    """

    measure: str | None = None
    run: str | os.PathLike[str] | None = None
    extras: MoreMeasurements = field(default_factory=MoreMeasurements)
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Reported:
    """The page, the run files behind it, and what was done and not done for it.

    `problems` are measurements that were asked for and failed; the page is written without them.
    """

    page: Path
    measured: tuple[MeasuredSource, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def report(
    source: Source | Sequence[Source],
    output: str | os.PathLike[str] = "report.html",
    *,
    measure: str | None = None,
    run: str | os.PathLike[str] | None = None,
    spectra: bool | None = None,
    saturation: bool = False,
    text: str | os.PathLike[str] | None = None,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    pattern: str | None = None,
    progress: Progress = silent,
) -> Path:
    """Write one HTML file about a `source`: checkpoints, a run, a sweep's folder, a log, a bundled series.

    Checkpoints (a folder, a file, a glob, `hf://OWNER/NAME` or another address) are scanned first, into the
    run file `run`: by default one named after the source, beside the page. It is continued the next time.
    `steps`, `revisions` and `pattern` are as in ScanConfig. `spectra` are measured if that takes little
    time, or if it is true; `saturation` if it is true, on the sentences in the file `text`. A list of
    sources is compared on one page. `output` is the file to write; `measure` names the column of a log that
    has several. `progress` is called with (done, total, note).

    >>> ns.report("t5-base", "t5.html").name
    't5.html'
    """
    check_progress(progress)
    extras = MoreMeasurements(spectra, saturation, text)
    config = ReportConfig(measure, run, extras, Reading(steps, revisions, pattern))
    found = write_report(_listed(source), output, config, named_parts(progress))
    if found.problems:
        raise NormscopeError(f"{found.page} was written, but {found.problems[0]}")
    return found.page


def _listed(source: Any) -> list[Any]:
    """The sources: those of a list of them; (steps, values) is a single one."""
    several = isinstance(source, list | tuple) and len(source) > 0
    if several and all(isinstance(each, str | os.PathLike | Run | Series) for each in source):
        return list(source)
    return [source]


def write_report(
    sources: Sequence[Any], output: str | os.PathLike[str], config: ReportConfig, parts: Parts
) -> Reported:
    """Measure what is missing, then write the page of one source, or of several beside one another."""
    page = check_place(output)
    if config.run is not None:
        check_kind("run", config.run, (str, os.PathLike), "the path of a run file")
    known = [known_source(source) for source in sources]
    notes = [source.note for source in known if source.note]
    series = [[source] for source in known]
    if as_one_series(known):
        notes.append(ONE_SERIES.format(len(known)))
        series = [known]
    _check(series, config)
    measured = {
        i: _measure([each.given for each in members], page, config, _numbered(parts, i, len(series)))
        for i, members in enumerate(series)
        if members[0].kind == CHECKPOINTS
    }
    shown = [measured[i].run if i in measured else each[0].given for i, each in enumerate(series)]
    findings = _write(shown, [_name(each[0].given) for each in series], page, config, parts)
    problems = tuple(problem for each in measured.values() for problem in each.problems)
    return Reported(page, tuple(measured.values()), findings, tuple(notes), problems)


def _numbered(parts: Parts, i: int, count: int) -> Parts:
    """The parts of the work for one of several sources, with its number."""
    return parts if count == 1 else lambda name, unit: parts(f"{name} {i + 1} of {count}", unit)


def _name(source: Any) -> str:
    if isinstance(source, Run):
        return str(source.path)
    return source.name if isinstance(source, Series) else str(source)


def _check(series: Sequence[Sequence[KnownSource]], config: ReportConfig) -> None:
    """Refuse options that have no effect on these sources, and a sweep among several."""
    kinds = [group[0].kind for group in series]
    if len(series) > 1 and SWEEP in kinds:
        sweep = series[kinds.index(SWEEP)][0].given
        raise UsageError(
            f"{sweep} is a sweep, which has a page of its own: report it alone, or name cells to compare, "
            f"such as {sweep}@lr=0.01"
        )
    if config.run is not None and kinds.count(CHECKPOINTS) != 1:
        raise UsageError(
            "--run is the run file of checkpoints that are scanned, and "
            f"{'there are several' if kinds.count(CHECKPOINTS) else 'none are given'}: leave it out"
        )
    if config.measure is not None and SERIES not in kinds and (len(kinds) > 1 or CHECKPOINTS in kinds):
        raise UsageError(
            f"measure={config.measure!r} names a column, and there is no log among the sources; leave it out"
        )
    if CHECKPOINTS not in kinds and (config.extras.asked or config.reading.given):
        options = [*config.extras.asked, *config.reading.given]
        raise UsageError(
            f"{' and '.join(options)} can only be used with checkpoints, and {series[0][0].given} has none: "
            "name their folder or address"
        )


def _measure(sources: Sequence[str], page: Path, config: ReportConfig, parts: Parts) -> MeasuredSource:
    from normscope.reporting.kept_run import kept_run

    run = kept_run(sources, page) if config.run is None else Path(config.run)
    return measure_source(sources, run, config.extras, config.reading, parts)


def _write(
    shown: Sequence[Any], names: Sequence[str], page: Path, config: ReportConfig, parts: Parts
) -> tuple[Finding, ...]:
    """Write the page; return what the scans found wrong with its series."""
    from normscope.views.page.page import write
    from normscope.views.reports.report import report as write_one
    from normscope.views.reports.several_runs import compared_page

    progress = parts("fitting and drawing", "")
    progress(0, 0, "")
    if len(shown) == 1:
        write_one(shown[0], page, measure=config.measure)
    else:
        write(compared_page(shown, names, config.measure, progress), page)
    return tuple(finding for source in shown for finding in source_findings(source))
