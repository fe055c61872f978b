"""A named series of (step, value) points: what every law, forecast and comparison starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.anatomy import of_scope
from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_kind
from normscope.remarks import Finding, unsound_sentence
from normscope.table import Table, Tabular

#: The series that come with the package, and their files.
REFERENCES: dict[str, str] = {"t5-base": "t5-base.csv", "t5-base-cosine": "t5-base-cosine.csv"}

#: Longer series are thinned to this many points before a law is fitted: more would only cost time.
MAX_POINTS = 2000

LARGEST_STEP = 2**53  # larger integers have no exact float


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Series(Tabular):
    """The `values` of one quantity at training `steps`, in the order given, under a `name`.

    `unit` names the quantity, `scope` the parameters it was measured on (body, all), where they are
    known. `findings` are what the scan found wrong with the checkpoints; every answer about the series
    says them first. `notes` are what reading a log found out: which columns were taken, what was left out.

    >>> losses = ns.Series("loss", [0, 100, 200], [4.2, 3.1, 2.8])
    >>> len(losses), losses.values[losses.steps >= 100]
    (3, array([3.1, 2.8]))
    """

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    unit: str = ""
    scope: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        steps: ArrayLike,
        values: ArrayLike,
        unit: str = "",
        scope: str = "",
        findings: Sequence[Finding] = (),
        notes: Sequence[str] = (),
    ) -> None:
        texts = {"name": name, "unit": unit, "scope": scope}
        for option, text in texts.items():
            check_kind(option, text, str, "a text")
        for finding in findings:
            check_kind("findings", finding, Finding, "a list of Finding")
        for note in notes:
            check_kind("notes", note, str, "a list of texts")
        arrays = {"steps": _integers(steps, name), "values": _vector(values, name)}
        lengths = [len(array) for array in arrays.values()]
        if lengths[0] != lengths[1]:
            raise SeriesError(f"{name}: {lengths[0]} steps but {lengths[1]} values; every point needs both")
        remarks = {"findings": tuple(findings), "notes": tuple(notes)}
        for field, value in {**texts, **arrays, **remarks}.items():
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.steps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        same = (self.name, self.unit, self.scope) == (other.name, other.unit, other.scope)
        values = same and np.array_equal(self.values, other.values, equal_nan=True)
        return values and np.array_equal(self.steps, other.steps)

    def __hash__(self) -> int:
        return hash((self.name, self.unit, self.scope, self.steps.tobytes(), self.values.tobytes()))

    def __repr__(self) -> str:
        ends = f" from step {self.steps[0]} to {self.steps[-1]}" if len(self) else ""
        return f"Series({self.name!r}, {len(self)} points{ends})"

    @property
    def table(self) -> Table:
        """One row per point: step, value."""
        return Table({"step": self.steps.tolist(), self.unit or "value": self.values.tolist()})

    @property
    def subject(self) -> str:
        """What a sentence about the series begins with: "The norm of the body", or the name of a group."""
        return f"The {self.unit or 'norm'}{of_scope(self.scope)}" if self.name == "total" else self.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """What every answer about the series says first: nothing, or that it is not sound."""
        sentence = unsound_sentence(self.findings)
        return (sentence,) if sentence else ()

    @property
    def messages(self) -> tuple[str, ...]:
        """Warnings and notes that a notebook shows above the table."""
        return (*self.warnings, *self.notes)


def _vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SeriesError(f"{name}: expected numbers, got {type(values).__name__}: {error}") from None
    if array.ndim != 1:
        raise SeriesError(f"{name}: expected a flat list of numbers, got an array of shape {array.shape}")
    return array


def _integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    steps = _vector(values, name)
    if not np.isfinite(steps).all():
        raise SeriesError(f"{name}: a step is not a finite number; remove that point or correct its step")
    if (np.abs(steps) > LARGEST_STEP).any():
        raise SeriesError(f"{name}: a step is larger than 2^53; check the step column")
    return np.rint(steps).astype(np.int64)


@dataclass(frozen=True)
class Cleaned:
    """A series with increasing steps and finite values; `notes` say what was changed."""

    series: Series
    notes: tuple[str, ...]
    total: int


def clean_series(series: Series, limit: int = MAX_POINTS) -> Cleaned:
    """Sort by step, drop values that are not finite and repeats of a step, thin to `limit` points."""
    notes: list[str] = []
    kept = _thin(_unique(_finite(series, notes), notes), limit, notes)
    return Cleaned(kept, tuple(notes), len(series))


def in_order(series: Series) -> Series:
    """The series by increasing steps, with the last value of each; its notes say what was changed."""
    notes: list[str] = []
    kept = _unique(series, notes)
    return replace(kept, notes=(*series.notes, *notes))


def _finite(series: Series, notes: list[str]) -> Series:
    good = np.isfinite(series.values)
    if good.all():
        return series
    lost = int(len(series) - good.sum())
    notes.append(f"{lost} of {len(series)} points are not finite and were left out")
    return replace(series, steps=series.steps[good], values=series.values[good])


def _unique(series: Series, notes: list[str]) -> Series:
    steps = series.steps
    if len(steps) < 2 or (np.diff(steps) > 0).all():
        return series
    order = np.argsort(steps, kind="stable")
    if (np.diff(steps) < 0).any():
        notes.append("the steps were not in order and have been sorted")
    last = np.append(np.diff(steps[order]) > 0, True)
    repeated = int(len(steps) - last.sum())
    if repeated:
        what = "1 point repeats a step" if repeated == 1 else f"{repeated} points repeat a step"
        notes.append(f"{what}: the last value given for each step was used")
    return replace(series, steps=steps[order][last], values=series.values[order][last])


def _thin(series: Series, limit: int, notes: list[str]) -> Series:
    """Keep both ends, and points at equal distances in index and in the logarithm of the index.

    Half of the points are as dense as the series, half are denser at its beginning, where laws differ
    most. Points are selected, never averaged.
    """
    n = len(series)
    if n <= limit:
        return series
    even = np.linspace(0, n - 1, limit // 2)
    early = np.geomspace(1, n, limit - limit // 2) - 1
    index = np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))
    notes.append(f"thinned from {n} to {len(index)} points before fitting")
    return replace(series, steps=series.steps[index], values=series.values[index])


def reference(name: str) -> Series:
    """One of the series that come with the package."""
    if name not in REFERENCES:
        raise UsageError(f"unknown bundled series {name!r}: expected {' or '.join(sorted(REFERENCES))}")
    text = files("normscope.data").joinpath(REFERENCES[name]).read_text(encoding="utf-8")
    (_, unit), *points = (line.split(",") for line in text.splitlines())
    return Series(name, [float(step) for step, _ in points], [float(value) for _, value in points], unit=unit)
