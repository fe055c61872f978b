"""Measures that other packages add: computed for every matrix of a series after its sums.

A plugin of the group `measures` is a function of a matrix, or of a matrix and the same matrix at
the checkpoint before, that returns a number. Matrices are float32 tensors of two dimensions; a
tensor with more is flattened to [shape[0], -1]. Only values that the run file lacks are computed.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from normscope.checkpoints.arrays import read_tensor
from normscope.checkpoints.base import Checkpoint
from normscope.errors import PluginError
from normscope.plugins import Plugin, plugins
from normscope.progress import Progress
from normscope.run import MeasureRow, Run, TensorRow
from normscope.theory.measures.group_sums import MEASURES
from normscope.theory.measures.measures import COMPOUND

if TYPE_CHECKING:
    from torch import Tensor

FLUSH_SECONDS = 1.0  # computed values wait at most this long to be written


class MeasuredStage(Protocol):
    """What is read of a stage: its open checkpoints, in the order of their steps, and its tensors."""

    name: str
    steps: list[int]
    checkpoints: list[Checkpoint]
    rows: list[TensorRow]


@dataclass(frozen=True)
class PluginMeasure:
    """One measure; `compares` if it also takes the matrix at the previous checkpoint."""

    name: str
    package: str
    function: Callable[..., Any]
    compares: bool

    def __str__(self) -> str:
        return f"the measure {self.name!r} of the package {self.package}"

    def call(self, matrices: Sequence[Tensor], where: str) -> float:
        """Its value for these matrices; any failure is a PluginError that says `where`."""
        changes = [matrix._version for matrix in matrices]  # torch counts changes in place
        try:
            result = self.function(*matrices)
        except Exception as error:
            raise PluginError(f"{self} failed {where}: {type(error).__name__}: {error}") from error
        if changes != [matrix._version for matrix in matrices]:
            raise PluginError(f"{self} changed its matrix {where}: it must work on a copy")
        try:
            return float(result)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(result).__name__
            raise PluginError(f"{self} must return a number; it returned a {kind} {where}") from error


def plugin_measures() -> tuple[PluginMeasure, ...]:
    """The measures of all installed plugins; PluginError if one cannot be called with a matrix or two."""
    return tuple(_measure(plugin) for plugin in plugins("measures"))


def _measure(plugin: Plugin) -> PluginMeasure:
    measure = PluginMeasure(plugin.name, plugin.package, plugin.value, compares=False)
    if plugin.name in MEASURES or plugin.name in COMPOUND:
        raise PluginError(f"{measure} has the name of a built-in measure; it needs another name")
    count = _required_arguments(measure)
    if count not in (1, 2):
        raise PluginError(
            f"{measure} must take a matrix, or a matrix and its predecessor; "
            f"it has {count} required arguments"
        )
    return PluginMeasure(plugin.name, plugin.package, plugin.value, compares=count == 2)


def _required_arguments(measure: PluginMeasure) -> int:
    if not callable(measure.function):
        raise PluginError(f"{measure} must be a function; it is {measure.function!r}")
    try:
        parameters = inspect.signature(measure.function).parameters.values()
    except ValueError as error:
        raise PluginError(f"{measure} has no readable signature: wrap it in a Python function") from error
    required = [
        p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if by_name := [p.name for p in required if p.kind is p.KEYWORD_ONLY]:
        raise PluginError(f"{measure} requires the keyword argument {by_name[0]!r}: give it a default")
    return len(required)


def outdated_steps(before: Collection[int], now: Collection[int], changed: Collection[int]) -> list[int]:
    """Recorded steps whose checkpoint, or the one before it, is not the one that was measured.

    `before` are the steps that the run file knows, `now` those of the series; `changed` are those
    of both whose checkpoints have new contents.
    """
    earlier, later = _predecessors(before), _predecessors({*before, *now})
    return [step for step in before if {step, later[step]} & set(changed) or earlier[step] != later[step]]


def _predecessors(steps: Collection[int]) -> dict[int, int | None]:
    """The step before each step; None before the first."""
    ordered = sorted(steps)
    return dict(zip(ordered, [None, *ordered], strict=False))


def record_measures(
    run: Run, measures: Sequence[PluginMeasure], stages: Sequence[MeasuredStage], progress: Progress
) -> None:
    """Compute the values of these measures that are missing and write them to the run file."""
    work = [task for stage in stages for task in _missing(run, measures, stage)]
    total = sum(len(task.wanted) for task in work)
    rows: list[MeasureRow] = []
    flushed, done = time.monotonic(), 0
    try:
        for task in work:
            for found in task.compute():
                rows += found
                done += 1
                progress(done, total, f"plugin measures of {task.row.name}")
                if time.monotonic() - flushed > FLUSH_SECONDS:
                    _flush(run, rows)
                    flushed = time.monotonic()
    finally:
        _flush(run, rows)


def _flush(run: Run, rows: list[MeasureRow]) -> None:
    if rows:
        with run.transaction():
            run.write(rows)
        rows.clear()


def _missing(run: Run, measures: Sequence[PluginMeasure], stage: MeasuredStage) -> Iterator[MatrixTask]:
    """The matrices of a stage with missing values. Tied and empty tensors are not measured."""
    comparable = _comparable(run, stage)
    recorded = {measure.name: run.measured(measure.name) for measure in measures}
    matrices = [row for row in stage.rows if row.tied_to is None and len(row.shape) > 1 and row.numel]
    for row in matrices:
        wanted: dict[int, list[PluginMeasure]] = {}
        for measure in measures:
            for i in comparable if measure.compares else range(len(stage.steps)):
                if (stage.name, stage.steps[i], row.id) not in recorded[measure.name]:
                    wanted.setdefault(i, []).append(measure)
        if wanted:
            yield MatrixTask(stage, row, dict(sorted(wanted.items())))


def _comparable(run: Run, stage: MeasuredStage) -> list[int]:
    """Checkpoints, by index, whose predecessor in the series is also their predecessor in the run file."""
    predecessors = _predecessors([row.step for row in run.checkpoints() if row.stage == stage.name])
    return [i for i in range(1, len(stage.steps)) if predecessors[stage.steps[i]] == stage.steps[i - 1]]


@dataclass(frozen=True)
class MatrixTask:
    """The missing values of one matrix: for checkpoints, by index, the measures to compute."""

    stage: MeasuredStage
    row: TensorRow
    wanted: Mapping[int, Sequence[PluginMeasure]]

    def compute(self) -> Iterator[list[MeasureRow]]:
        """The values of one checkpoint after another, in the order of their steps."""
        latest: tuple[int, Tensor] | None = None
        for i, measures in self.wanted.items():
            previous = None
            if any(measure.compares for measure in measures):
                previous = latest[1] if latest and latest[0] == i - 1 else self._read(i - 1)
            matrix = self._read(i)
            yield [self._value(measure, i, matrix, previous) for measure in measures]
            latest = (i, matrix)

    def _read(self, i: int) -> Tensor:
        return read_tensor(self.stage.checkpoints[i], self.row.name).float().flatten(1)

    def _value(self, measure: PluginMeasure, i: int, matrix: Tensor, previous: Tensor | None) -> MeasureRow:
        step = self.stage.steps[i]
        matrices = [matrix] if previous is None or not measure.compares else [matrix, previous]
        value = measure.call(matrices, f"for the tensor {self.row.name} at step {step}")
        stored = value if math.isfinite(value) else None
        return MeasureRow(step, self.row.id, measure.name, stored, self.stage.name)
