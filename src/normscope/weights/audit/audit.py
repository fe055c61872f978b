"""Decide whether a series of checkpoints is what its labels claim.

As little as possible is read: first the headers (names, shapes, dtypes, digests, stored
steps), then every weight once for the sums of a scan, unless a run file already has
them; and a sample of each checkpoint, to compare it with all others.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from normscope.checkpoints.series.series import CheckpointSeries, CheckpointSource, Entry, open_series
from normscope.errors import CheckpointError, RunFileError, UsageError
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.remarks import Finding, LeftOut, find_in_history, sound
from normscope.run import Run
from normscope.run_files.run_opening import is_run_file
from normscope.table import Table, Tabular
from normscope.weights.scan.scan import ScanConfig, scan_series
from normscope.weights.soundness.check import MOST_COMPARED, check_sums
from normscope.weights.soundness.findings import KINDS
from normscope.weights.soundness.headers import Header, alike, find_in_headers, only_parameters, read_header
from normscope.weights.soundness.spacing import learn_spacing
from normscope.words import joined

NOTHING_TO_COMPARE = "nothing to compare: there is only one checkpoint"
FROM_HEADERS = ("unreadable", "name", "shape", "embedding", "dtype")


@dataclass(frozen=True, repr=False)
class Audit(Tabular):
    """The findings about a series, highest confidence first.

    `spacing` is the rule that the steps follow, by stage. `checked` are the kinds of findings
    that were looked for; a run file contains no headers, so it cannot show all kinds. Of a single
    checkpoint, `sound` is true, and so is `nothing_to_compare`: nothing could contradict its label.
    `left_out` are checkpoints that were found and are not part of the series; `notes` say how it was read.

    >>> gap = ns.Finding("gap", (3000,), "step 3000 is missing", 0.9)
    >>> ns.Audit(False, (gap,), "checkpoints/", 9, {"": "every 1000"}, ("gap",)).messages
    ('not sound',)
    """

    sound: bool
    findings: tuple[Finding, ...]
    source: str
    checkpoints: int
    spacing: Mapping[str, str] = field(hash=False)
    checked: tuple[str, ...]
    nothing_to_compare: bool = False
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def table(self) -> Table:
        """One row per finding."""
        names = ("kind", "stage", "steps", "confidence", "evidence")
        rows = [
            (f.kind, f.stage, " ".join(map(str, f.steps)), f.confidence, f.evidence) for f in self.findings
        ]
        return Table.from_rows(names, rows)

    @property
    def messages(self) -> tuple[str, ...]:
        """The verdict."""
        if self.sound and self.nothing_to_compare:
            return (NOTHING_TO_COMPARE,)
        return ("sound" if self.sound else "not sound",)


def audit(
    source: Run | CheckpointSource | Sequence[CheckpointSource],
    *,
    run: str | os.PathLike[str] | None = None,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    pattern: str | None = None,
    progress: Progress = silent,
) -> Audit:
    """Decide whether a series is sound: a folder, files, a glob, or a run file scanned from them.

    `source` may also be an open `Run`. `run` is a run file to keep the sums in; sums that it already has
    are not computed again. `steps`, `revisions` and `pattern` are as in ScanConfig. A run file as the source
    takes none of these: nothing but its sums is looked at. `progress` is called with (done, total, note).

    >>> import numpy as np, normscope as ns, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for step in (1000, 2000, 4000, 5000, 6000):
    ...     np.savez(f"{folder}/step_{step}.npz", w=np.full((3, 3), step / 1000))
    >>> [(finding.kind, finding.steps) for finding in ns.audit(folder).findings]
    [('gap', (3000,))]
    """
    check_progress(progress)
    if run is not None:
        check_kind("run", run, (str, os.PathLike), "the path of a run file")
    if isinstance(source, Run) or (isinstance(source, str | os.PathLike) and is_run_file(Path(source))):
        _refuse_options(source, {"run": run, "steps": steps, "revisions": revisions, "pattern": pattern})
        with nullcontext(source) if isinstance(source, Run) else Run(source) as sums:
            return _audit_run(sums)
    series = open_series(source, steps=steps, revisions=revisions, pattern=pattern)
    stages = _read_headers(series, progress)
    findings = [finding for stage in stages for finding in stage.from_headers()]
    kept = replace(series, entries=tuple(entry for stage in stages for entry in stage.comparable))
    with tempfile.TemporaryDirectory(prefix="normscope-audit-") as folder:
        target = Path(folder, "run.db") if run is None else Path(run)
        if kept.entries:
            config = ScanConfig(command=f"ns.audit({series.name!r})", measures=False)
            scan_series(kept, target, config, progress, intersect=True)
            with Run(target, write=True) as sums:
                for stage in stages:
                    findings += stage.from_weights(sums)
    rules = {stage.name: stage.rule for stage in stages}
    counts = [len(stage.steps) for stage in stages]
    found = _result(findings, series.name, counts, rules, tuple(KINDS))
    return replace(found, left_out=series.left_out, notes=series.notes)


def _refuse_options(source: Run | str | os.PathLike[str], options: Mapping[str, object]) -> None:
    given = [f"`{name}`" for name, value in options.items() if value is not None]
    if given:
        path = source.path if isinstance(source, Run) else os.fspath(source)
        raise UsageError(
            f"{joined(given)} cannot be used with the run file {path}, whose sums are "
            "audited as they are; give the checkpoints instead, or leave the option out"
        )


def _audit_run(run: Run) -> Audit:
    """Audit a run file: its sums, and the comparison of all checkpoints that the scan kept in it."""
    rows = run.checkpoints()
    if not rows:
        raise RunFileError(
            f"{run.path} contains no checkpoints to audit: give the folder of the checkpoints, "
            f"or scan it first with 'normscope scan SOURCE --run {run.path}'"
        )
    findings: list[Finding] = []
    rules, counts = {}, []
    for stage, several in groupby(rows, key=lambda row: row.stage):
        digests = {row.step: row.digest for row in several}
        spacing = learn_spacing(list(digests))
        rules[stage] = spacing.rule
        counts.append(len(digests))
        found = check_sums(run, stage, digests)
        findings += [finding.of_stage(stage) for finding in (*spacing.findings, *found)]
    findings += find_in_history(run)
    checked = tuple(kind for kind in KINDS if kind not in FROM_HEADERS)
    return replace(_result(findings, str(run.path), counts, rules, checked), left_out=tuple(run.left_out()))


def _result(
    findings: Sequence[Finding],
    source: str,
    counts: Sequence[int],
    rules: Mapping[str, str],
    checked: tuple[str, ...],
) -> Audit:
    """The answer; `counts` are the numbers of checkpoints of the stages."""
    ordered = sorted(findings, key=lambda f: (-f.confidence, f.stage, f.steps[:1]))
    alone = max(counts) < 2
    return Audit(sound(findings), tuple(ordered), source, sum(counts), dict(rules), checked, alone)


@dataclass(frozen=True)
class _StageHeaders:
    """The checkpoints of one stage that can be opened, with their headers.

    `steps` are those of all its checkpoints; `unreadable` has a finding for each one that
    cannot be opened.
    """

    name: str
    entries: tuple[Entry, ...]
    headers: tuple[Header, ...]
    unreadable: tuple[Finding, ...]
    steps: tuple[int, ...]

    @property
    def rule(self) -> str:
        """The spacing of its steps, in words."""
        return learn_spacing(self.steps).rule

    @property
    def comparable(self) -> tuple[Entry, ...]:
        """Checkpoints with mostly the same tensors; the headers of the others are findings already."""
        return tuple(self.entries[i] for i in alike(self.headers)) if self.headers else ()

    def from_headers(self) -> list[Finding]:
        """All findings that need no weights."""
        found = [*self.unreadable, *learn_spacing(self.steps).findings]
        found += find_in_headers(self.headers) if self.headers else []
        return [finding.of_stage(self.name) for finding in found]

    def from_weights(self, run: Run) -> list[Finding]:
        """All findings from the sums in the run file, and from comparing all checkpoints in a sample."""
        comparable = set(self.comparable)
        kept = [pair for pair in zip(self.entries, self.headers, strict=True) if pair[0] in comparable]
        digests: dict[int, str | None] = {entry.step: header.digest for entry, header in kept}
        with ExitStack() as stack:
            opened = []
            for entry, _ in kept if len(kept) <= MOST_COMPARED else ():
                opened.append(entry.open())
                stack.callback(opened[-1].close)
            found = check_sums(run, self.name, digests, opened)
        return [finding.of_stage(self.name) for finding in found]


def _read_headers(series: CheckpointSeries, progress: Progress) -> list[_StageHeaders]:
    stages = []
    done = 0
    for name, members in groupby(series.entries, key=lambda entry: entry.stage):
        opened: list[tuple[Entry, Header]] = []
        unreadable = []
        steps = []
        for entry in members:
            steps.append(entry.step)
            try:
                opened.append((entry, read_header(entry)))
            except CheckpointError as error:
                unreadable.append(Finding("unreadable", (entry.step,), str(error), 1.0))
            done += 1
            progress(done, len(series.entries), "reading headers")
        entries, headers = zip(*opened, strict=True) if opened else ((), ())
        compared = only_parameters(entries, headers)
        stages.append(_StageHeaders(name, entries, compared, tuple(unreadable), tuple(steps)))
    return stages
