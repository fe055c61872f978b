"""Measure what the page of a source needs: its weights; spectra and saturation where asked or cheap."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from normscope.errors import NormscopeError, SourceNotFound, UsageError
from normscope.option_checks import check_kind
from normscope.progress import Parts
from normscope.run import Run
from normscope.views.page.formatting import plural
from normscope.words import duration

if TYPE_CHECKING:
    from normscope.weights.scan.scan import ScanConfig

NO_SATURATION = "saturation was not measured, because it runs the model: ask for it with --saturation"


@dataclass(frozen=True)
class MoreMeasurements:
    """What is measured beside the norms: `spectra`, None if they are cheap; `saturation`, on a `text`."""

    spectra: bool | None = None
    saturation: bool = False
    text: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_kind("spectra", self.spectra, (bool, type(None)), "True, False or None")
        check_kind("saturation", self.saturation, bool, "True or False")
        if self.text is not None:
            check_kind("text", self.text, (str, os.PathLike), "the path of a text file")
        if self.text is not None and not self.saturation:
            raise UsageError(
                "--text is what saturation is measured on, which was not asked for: add --saturation, or "
                "leave --text out"
            )
        if self.text is not None and not Path(self.text).is_file():
            raise SourceNotFound(f"no text at {self.text}: expected a file with one sentence per line")

    @property
    def asked(self) -> list[str]:
        """The options that were given, for a sentence."""
        given = {"--spectra": self.spectra, "--saturation": self.saturation}
        return [name for name, value in given.items() if value]


@dataclass(frozen=True)
class Reading:
    """How a series is read, as in ScanConfig, and the command to record."""

    steps: Sequence[int] | None = None
    revisions: str | Sequence[str] | None = None
    pattern: str | None = None
    command: str | None = None

    @property
    def given(self) -> list[str]:
        """The options that were given, for a sentence."""
        return [f"--{name}" for name in ("steps", "revisions", "pattern") if getattr(self, name) is not None]

    @property
    def config(self) -> ScanConfig:
        """The scan that reads it so."""
        from normscope.weights.scan.scan import ScanConfig

        return ScanConfig(
            steps=self.steps, revisions=self.revisions, pattern=self.pattern, command=self.command
        )


@dataclass(frozen=True)
class MeasuredSource:
    """A run file that was made or continued: what was done in it, what was not, and what went wrong."""

    run: Path
    done: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def measure_source(
    sources: Sequence[str], run: Path, extras: MoreMeasurements, reading: Reading, parts: Parts
) -> MeasuredSource:
    """Scan the checkpoints into the run file, or continue there, and measure what else is wanted.

    A measurement beside the norms that fails is a problem to be told, and no reason to lose the page.
    """
    from normscope.weights.scan.scan import scan

    before = _scanned(run)
    scan(list(sources), run, reading.config, progress=parts("scanning", "B")).close()
    done = [_what_was_scanned(before, _scanned(run))]
    wanted, why_not = _spectra_wanted(sources, run, extras)
    not_done = [*([why_not] if why_not else []), *([] if extras.saturation else [NO_SATURATION])]
    problems = []
    steps = {"spectra": (wanted, _spectra), "saturation": (extras.saturation, _saturation)}
    for name, (is_wanted, measure) in steps.items():
        if is_wanted:
            try:
                measure(sources, run, extras, reading, parts)
                done.append(f"measured {name}")
            except NormscopeError as error:
                problems.append(f"{name} could not be measured: {error}")
    return MeasuredSource(run, tuple(done), tuple(not_done), tuple(problems))


def _scanned(path: Path) -> int:
    """The number of checkpoints that a finished scan has in the run file."""
    if not path.exists():
        return 0
    with Run(path) as run:
        return len(run.checkpoints()) if run.meta.get("complete") else 0


def _what_was_scanned(before: int, now: int) -> str:
    if now == before:
        return f"{plural(now, 'checkpoint')} had been scanned before"
    return f"scanned {plural(now - before, 'new checkpoint' if before else 'checkpoint')}"


def _spectra_wanted(sources: Sequence[str], path: Path, extras: MoreMeasurements) -> tuple[bool, str]:
    """Whether spectra are measured; and if not, why, and how to ask for them."""
    from normscope.reporting.spectra_cost import CHEAP, spectra_seconds

    if extras.spectra is not None:
        return extras.spectra, ""
    with Run(path) as run:
        seconds = spectra_seconds(run)
    ask = "ask for them with --spectra"
    if seconds and any("://" in source for source in sources):
        return False, f"spectra were not measured, because they read every checkpoint again: {ask}"
    if seconds > CHEAP:
        return False, f"spectra were not measured: they would take about {duration(seconds)}; {ask}"
    return seconds > 0, ""


def _spectra(
    sources: Sequence[str], run: Path, extras: MoreMeasurements, reading: Reading, parts: Parts
) -> None:
    from normscope.weights.spectrum.spectrum import spectrum
    from normscope.weights.spectrum.spectrum_config import SpectrumConfig

    spectrum(list(sources), run, SpectrumConfig(scan=reading.config), progress=parts("spectra", ""))


def _saturation(
    sources: Sequence[str], run: Path, extras: MoreMeasurements, reading: Reading, parts: Parts
) -> None:
    from normscope.network.loading.models import SeriesOptions, StudyText
    from normscope.network.running.inputs import read_sentences
    from normscope.network.study import StudyConfig, study

    text = StudyText(read_sentences(None if extras.text is None else Path(extras.text)))
    options = SeriesOptions(reading.steps, reading.revisions, reading.pattern)
    study(list(sources), text, StudyConfig(run=run, series=options), parts("saturation", ""))
