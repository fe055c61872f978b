"""Whether a series of checkpoints is what its labels claim.

As little as possible is read: headers first (names, shapes, dtypes, digests, stored
steps), then every weight once for the sums of a scan, none of it where a run file has
them; a sample of each checkpoint, for how far all are from each other; and for what
looks suspicious, the distance of two checkpoints.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path

from normscope.checkpoints.series.series import CheckpointSeries, Entry, open_series
from normscope.errors import CheckpointError, RunFileError
from normscope.progress import Progress, silent
from normscope.run import Run
from normscope.table import Table, Tabular
from normscope.weights.audit.breaks import FEWEST, find_breaks
from normscope.weights.audit.findings import KINDS, Array, Finding
from normscope.weights.audit.headers import Header, alike, find_in_headers, read_header
from normscope.weights.audit.path import Between
from normscope.weights.audit.samples import sampled_distances
from normscope.weights.audit.spacing import learn_spacing
from normscope.weights.audit.tensor_checks import (
    Whole,
    duplicate,
    find_in_contents,
    load_contents,
    same_digest,
    whole_model,
)
from normscope.weights.scan.scan import ScanConfig, scan_series

Source = str | os.PathLike[str]

SURE = 0.5
"""A series is sound when no finding is at least this sure; what is less is a hint."""
MOST_COMPARED = 2000  # checkpoints: beyond, not every one with every other
FROM_HEADERS = ("unreadable", "name", "shape", "embedding", "dtype")


@dataclass(frozen=True)
class Audit(Tabular):
    """The findings about a series, the surest first.

    `spacing` is the rule of the steps, by stage; `checked` are the kinds of findings
    that were looked for: a run file tells nothing of headers.
    """

    sound: bool
    findings: tuple[Finding, ...]
    source: str
    checkpoints: int
    spacing: Mapping[str, str]
    checked: tuple[str, ...]

    @cached_property
    def table(self) -> Table:
        """A row a finding."""
        names = ("kind", "stage", "steps", "confidence", "evidence")
        rows = [
            (f.kind, f.stage, " ".join(map(str, f.steps)), f.confidence, f.evidence) for f in self.findings
        ]
        return Table.from_rows(names, rows)

    @property
    def messages(self) -> tuple[str, ...]:
        """The verdict."""
        return ("sound" if self.sound else "not sound",)


def audit(
    source: Source | Sequence[Source],
    *,
    run: Source | None = None,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    progress: Progress = silent,
) -> Audit:
    """Say whether a series is sound: a folder, files, a glob, or a run file that was scanned from them.

    `run` is a run file to keep the sums in; what it holds already is not read again.
    """
    if isinstance(source, str | os.PathLike) and _is_database(source):
        return _audit_run(source)
    series = open_series(source, steps=steps, revisions=revisions)
    stages = _read_headers(series, progress)
    findings = [finding for stage in stages for finding in stage.from_headers()]
    kept = CheckpointSeries(series.name, tuple(entry for stage in stages for entry in stage.comparable))
    with tempfile.TemporaryDirectory(prefix="normscope-audit-") as folder:
        target = Path(folder, "run.db") if run is None else Path(run)
        if kept.entries:
            scan_series(kept, target, ScanConfig(command=f"ns.audit({series.name!r})"), progress)
            with Run(target) as sums:
                for stage in stages:
                    findings += stage.from_weights(sums, Path(folder), progress)
    rules = {stage.name: stage.rule for stage in stages}
    return _result(findings, series.name, len(series.entries), rules, tuple(KINDS))


def _audit_run(source: Source) -> Audit:
    """Audit what a run file knows; distances of further checkpoints cannot be asked for."""
    with Run(source) as run:
        rows = run.checkpoints()
        if not rows:
            raise RunFileError(
                f"{run.path} holds no checkpoints to audit: give the folder they lie in, "
                f"or scan them first with 'normscope scan SOURCE --run {run.path}'"
            )
        findings: list[Finding] = []
        rules = {}
        for stage, several in groupby(rows, key=lambda row: row.stage):
            digests = {row.step: row.digest for row in several}
            spacing = learn_spacing(list(digests))
            rules[stage] = spacing.rule
            found = _from_sums(run, stage, digests, None)
            findings += [finding.of_stage(stage) for finding in (*spacing.findings, *found)]
    checked = tuple(kind for kind in KINDS if kind not in FROM_HEADERS)
    return _result(findings, os.fspath(source), len(rows), rules, checked)


def _result(
    findings: Sequence[Finding], source: str, count: int, rules: Mapping[str, str], checked: tuple[str, ...]
) -> Audit:
    ordered = sorted(findings, key=lambda f: (-f.confidence, f.stage, f.steps[:1]))
    sound = all(finding.confidence < SURE for finding in findings)
    return Audit(sound, tuple(ordered), source, count, dict(rules), checked)


@dataclass(frozen=True)
class _Stage:
    """The checkpoints of one stage that could be opened, with their headers; `lost` could not be."""

    name: str
    entries: tuple[Entry, ...]
    headers: tuple[Header, ...]
    lost: tuple[Finding, ...]
    steps: tuple[int, ...]

    @property
    def rule(self) -> str:
        """The spacing of its steps, in words."""
        return learn_spacing(self.steps).rule

    @property
    def comparable(self) -> tuple[Entry, ...]:
        """Checkpoints that hold mostly the same tensors; the others are findings already."""
        return tuple(self.entries[i] for i in alike(self.headers)) if self.headers else ()

    def from_headers(self) -> list[Finding]:
        """Everything that no weight is needed for."""
        found = [*self.lost, *learn_spacing(self.steps).findings]
        found += find_in_headers(self.headers) if self.headers else []
        return [finding.of_stage(self.name) for finding in found]

    def from_weights(self, run: Run, folder: Path, progress: Progress) -> list[Finding]:
        """Everything that the sums in the run file tell, and further reads where they raise a suspicion."""
        digests: dict[int, str | None] = {
            entry.step: header.digest for entry, header in zip(self.entries, self.headers, strict=True)
        }
        entries = {entry.step: entry for entry in self.comparable}
        chosen = {step: digest for step, digest in digests.items() if step in entries}
        found = _from_sums(run, self.name, chosen, _Reader(tuple(entries.values()), folder, progress))
        return [finding.of_stage(self.name) for finding in found]


def _read_headers(series: CheckpointSeries, progress: Progress) -> list[_Stage]:
    stages = []
    done = 0
    for name, members in groupby(series.entries, key=lambda entry: entry.stage):
        opened: list[tuple[Entry, Header]] = []
        lost = []
        steps = []
        for entry in members:
            steps.append(entry.step)
            try:
                opened.append((entry, read_header(entry)))
            except CheckpointError as error:
                lost.append(Finding("unreadable", (entry.step,), str(error), 1.0))
            done += 1
            progress(done, len(series.entries), "reading headers")
        entries, headers = zip(*opened, strict=True) if opened else ((), ())
        stages.append(_Stage(name, entries, headers, tuple(lost), tuple(steps)))
    return stages


def _from_sums(
    run: Run, stage: str, digests: Mapping[int, str | None], reader: _Reader | None
) -> list[Finding]:
    contents = load_contents(run, stage, list(digests)) if digests else None
    if contents is None:
        return [duplicate(steps, "the files have equal digests") for steps in same_digest(digests)]
    found = find_in_contents(contents, digests)
    copies = {step for finding in found if finding.kind == "duplicate" for step in finding.steps}
    whole = whole_model(contents)
    between = sampled = None
    if reader is not None and whole.end >= FEWEST:
        between, sampled = reader.between(whole.names), reader.sampled(whole)
    breaks = find_breaks(whole.path(between, sampled))
    return [*found, *(finding for finding in breaks if not copies >= set(finding.steps))]


@dataclass(frozen=True)
class _Reader:
    """Measures two checkpoints against each other, by their indices."""

    entries: tuple[Entry, ...]
    folder: Path
    progress: Progress

    def sampled(self, whole: Whole) -> Array | None:
        """About how far all are from each other; None where they are too many."""
        entries = self.entries[: whole.end]
        return (
            sampled_distances(entries, whole.names, self.progress) if len(entries) <= MOST_COMPARED else None
        )

    def between(self, names: frozenset[str]) -> Between:
        """The squared distance over these tensors, each pair read once."""

        @cache
        def distance(i: int, j: int) -> float:
            first, second = self.entries[i], self.entries[j]
            path = self.folder / f"{i}-{j}-{len(list(self.folder.iterdir()))}.db"
            scan_series(CheckpointSeries("pair", (first, second)), path, ScanConfig(), self._comparing)
            with Run(path) as run:
                contents = load_contents(run, first.stage, [first.step, second.step])
            if contents is None:
                return float("inf")
            return float(
                sum(
                    d
                    for t, d in zip(contents.tensors, contents.sumsq_delta[1], strict=True)
                    if t.name in names
                )
            )

        return lambda i, j: distance(min(i, j), max(i, j))

    def _comparing(self, done: float, total: float, _: str) -> None:
        self.progress(done, total, "comparing two checkpoints")


def _is_database(source: Source) -> bool:
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
