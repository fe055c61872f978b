"""From what a user has (a run, a run file, a training log, arrays, a bundled name) to series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_integer, check_kind
from normscope.remarks import Finding
from normscope.run import Run
from normscope.run_files.run_opening import is_run_file
from normscope.theory.logs.log_registry import FORMAT_NAMES, is_log_folder
from normscope.theory.measures import measures
from normscope.theory.measures.log_series import log_series
from normscope.theory.measures.time_series import REFERENCES, Series, reference
from normscope.theory.places.recorded_norms import (
    NOTE,
    has_only_norms,
    recorded_norm,
    recorded_scopes,
    refuse_weight_options,
)
from normscope.theory.places.run_places import is_sweep, run_place
from normscope.words import some

Source = Series | Run | str | Path | Sequence[Any]
"""A Series, a Run, the path of a run file, of a training run's folder, of a cell of a sweep (grid@lr=0.01)
or of a training log, a bundled name, or (steps, values)."""

_RUN_ONLY = {"by": "groups", "scope": "scopes", "stage": "stages"}


@dataclass(frozen=True)
class Selection:
    """Which values of a source a call asks for; None where the caller did not say.

    `measure` is a measure of a run (the norm by default) or a column of a log; `by`, `scope` and
    `stage` apply to runs alone; only the steps from `since` to `until` are kept.
    """

    measure: str | None = None
    by: str = "total"
    scope: str | None = None
    stage: str | None = None
    since: int = 0
    until: int | None = None

    def __post_init__(self) -> None:
        for option in ("measure", "by", "scope", "stage"):
            _check_name(option, getattr(self, option))
        object.__setattr__(self, "since", check_integer("since", self.since))
        if self.until is not None:
            object.__setattr__(self, "until", check_integer("until", self.until))
        if self.until is not None and self.until < self.since:
            raise UsageError(f"no step is both ≥ since={self.since} and ≤ until={self.until}")

    @property
    def run_only(self) -> dict[str, str]:
        """The options given that apply to runs alone."""
        return {
            name: value
            for name in _RUN_ONLY
            if (value := getattr(self, name)) is not None and (name, value) != ("by", "total")
        }

    @property
    def window(self) -> str:
        """The steps kept, in words."""
        words = [f"from step {self.since:,}"] if self.since else []
        words += [f"up to step {self.until:,}"] if self.until is not None else []
        return " ".join(words)


def _check_name(option: str, name: object) -> None:
    """Refuse what is not a name; "" is the stage of an ordinary run, and nothing else."""
    if option == "by" or name is not None:
        check_kind(option, name, str, "a name")
    if name == "" and option != "stage":
        raise UsageError(f"{option} must be a name; got the empty text")


def load(source: Source, selection: Selection = Selection(), least: int = 1) -> list[Series]:
    """Every series of `source` that is selected; at least one of them has `least` points or more."""
    with opened_run(source) as run:
        found = _of_run(run, selection) if run is not None else [_single(source, selection)]
    kept = [_within(series, selection) for series in found]
    whole, left = max(found, key=len), max(map(len, kept))
    if not len(whole):
        raise SeriesError(f"{whole.name} has no points; expected at least one step with its value")
    if left < min(least, len(whole)):
        raise SeriesError(
            f"{whole.name}: {left} of {len(whole)} points are left {selection.window}, and at least "
            f"{least} {'is' if least == 1 else 'are'} needed; "
            f"its steps go from {whole.steps.min():,} to {whole.steps.max():,}"
        )
    return kept


def load_one(source: Source, selection: Selection = Selection(), least: int = 1) -> Series:
    """The one series that is selected."""
    found = load(source, selection, least)
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} series match ({some([series.name for series in found], 8)}), expected one; "
            "use fit_groups for several"
        )
    return found[0]


@contextmanager
def opened_run(source: Source) -> Iterator[Run | None]:
    """The run that `source` is, opened when it is a path; None for any other source."""
    path = None if isinstance(source, Run) else run_path(source)
    if isinstance(source, Run):
        yield source
    elif path is not None:
        with Run(path) as run:
            yield run
    else:
        yield None


def run_path(source: object) -> Path | None:
    """The run file that a source names; None for any other source."""
    if not isinstance(source, (str, Path)) or is_bundled(source):
        return None
    path = _existing(source)
    return path if is_run_file(path) else None


def is_bundled(source: object) -> bool:
    """Whether the source names a series that comes with the package; a file of that name takes precedence."""
    return isinstance(source, (str, Path)) and str(source) in REFERENCES and not Path(source).exists()


def refuse_run_options(source: Source, selection: Selection) -> None:
    """Raise UsageError if an option was given that only a run has, and `source` is not a run."""
    for option, value in selection.run_only.items():
        raise UsageError(
            f"{option}={value!r} does not apply to {_described(source)}, which has no {_RUN_ONLY[option]}; "
            f"{'use by=' + repr('total') if option == 'by' else 'leave it out'}"
        )


def refuse_measure(source: Source, measure: str | None, reason: str) -> None:
    """Raise UsageError if a measure was given where none is chosen."""
    if measure is not None:
        where = source.path if isinstance(source, Run) else source
        raise UsageError(f"measure={measure!r} does not apply to {where}: {reason}; leave it out")


def source_notes(source: object, measure: str | None) -> tuple[str, ...]:
    """What is to be said about a log, or a run with norms alone, for answers that do not contain it."""
    if not isinstance(source, (str, Path)) or is_bundled(source):
        return ()
    path = run_path(source)
    if path is None:
        return log_series(source, measure).notes
    with Run(path) as run:
        return (NOTE,) if has_only_norms(run) else ()


def source_findings(source: object) -> tuple[Finding, ...]:
    """What the scan found wrong with any stage of a run file; nothing for any other source."""
    if isinstance(source, (str, Path)) and is_sweep(Path(source)):
        return ()
    path = run_path(source)
    if path is None:
        return ()
    with Run(path) as run:
        return tuple(run.findings())


def _existing(source: str | Path) -> Path:
    path, named = Path(source), run_place(source)
    if named != path and is_log_folder(path):
        raise UsageError(f"{path} contains a run file and a log: name {named}, or the file of the log")
    if named.is_file():
        return named
    if not path.is_file() and not is_log_folder(path):
        kind = "is a folder without a log or a run file" if path.is_dir() else "does not exist"
        raise UsageError(
            f"{source or repr(source)} {kind}; expected a run file (made by 'normscope scan'), the folder of "
            f"a training run, a cell of a sweep (grid@lr=0.01), a log with steps and norms ({FORMAT_NAMES}), "
            f"or a bundled series: {', '.join(REFERENCES)}"
        )
    return path


def _of_run(run: Run, selection: Selection) -> list[Series]:
    measure = selection.measure or "norm"
    if has_only_norms(run) and selection.measure not in run.measure_names():
        refuse_weight_options(run, selection.measure, selection.by, selection.stage)
        scope = selection.scope or recorded_scopes(run)[0]
        norm = recorded_norm(run, scope)
        return [Series("total", norm.steps, norm.values, unit="norm", scope=scope, notes=norm.notes)]
    found = measures.run_series(
        run, measure, by=selection.by, scope=selection.scope or "body", stage=selection.stage
    )
    if not found:
        raise SeriesError(
            f"{run.path} contains no {measure} by {selection.by}; scan its checkpoints first, at least two "
            "for a measure that compares checkpoints"
        )
    findings = stage_findings(run, selection.stage)
    return [replace(series, findings=findings) for series in found]


def stage_findings(run: Run, stage: str | None) -> tuple[Finding, ...]:
    """What the scan found wrong with the checkpoints of a stage, or with the run as a whole.

    A run with a single stage may leave out its name.
    """
    stages = run.stages()
    whole = {""} - set(stages)  # a finding without a stage, in a run whose stages have names
    wanted = set(stages) if stage is None else {stage}
    return tuple(finding for finding in run.findings() if finding.stage in wanted | whole)


def _single(source: Source, selection: Selection) -> Series:
    """The series of a source that is not a run."""
    refuse_run_options(source, selection)
    if isinstance(source, (str, Path)) and not is_bundled(source):
        return log_series(source, selection.measure)
    if isinstance(source, (str, Path)):
        series = reference(str(source))
    else:
        series = source if isinstance(source, Series) else _of_arrays(source)
    if selection.measure not in (None, series.unit or None):
        raise UsageError(
            f"measure={selection.measure!r} does not apply to {_described(source)}, "
            f"which is one series of {series.unit or 'values'}; leave it out"
        )
    return series


def _of_arrays(source: Any) -> Series:
    if isinstance(source, Run) or not isinstance(source, Sequence) or len(source) != 2:
        raise UsageError(
            f"expected a run, a path, (steps, values) or one of {', '.join(REFERENCES)}; "
            f"got {type(source).__name__}"
        )
    steps, values = source
    return Series("series", steps, values)


def _described(source: Source) -> str:
    if isinstance(source, Series):
        return f"the series {source.name}"
    if is_bundled(source):
        return f"the bundled series {source}"
    return f"the log {source}" if isinstance(source, (str, Path)) else "(steps, values)"


def _within(series: Series, selection: Selection) -> Series:
    if not selection.window:
        return series
    kept = series.steps >= selection.since
    if selection.until is not None:
        kept &= series.steps <= selection.until
    return replace(series, steps=series.steps[kept], values=series.values[kept])
