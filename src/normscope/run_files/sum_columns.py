"""The sums of a stage as columns, read once and kept: arrays [tensors, steps], a block of tensors at a time.

A run of a thousand checkpoints has millions of rows. As Python objects they would take a gigabyte, and every
grouping would read them again; as columns they take 32 bytes each, and those that exceed `KEPT_BYTES` are in
a temporary file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from normscope.run import NO_PREVIOUS, Run
from normscope.run_files.weight_rows import number_rows, tensor_parts
from normscope.run_schema import SCANNED_ROWS

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

PAIRS = ("checkpoints", "updates")
"""What θ′ is: the checkpoint before, or the step before."""
KEPT_BYTES = 80_000_000
"""Columns of one stage that are kept in memory."""

_NUMBERS = ("sumsq", "dot", "sumsq_delta", "dot_init", "nonfinite")


@dataclass(frozen=True)
class SumBlock:
    """The rows of some tensors, dense over the steps of any of them.

    Columns are [tensors, steps], NaN where there is no value: `sumsq`, `nonfinite`, `dot_init` of a scan and
    `live_init` of a monitor, and for each of PAIRS `dot` and `sumsq_delta` (as in "updates dot"). One that
    would be NaN everywhere, or zero for `nonfinite`, is left out.
    """

    tensors: NDArray[np.int64]
    steps: Steps
    present: NDArray[np.bool_]
    """Whether there is a row."""
    columns: Mapping[str, Array]

    def column(self, name: str, chosen: NDArray[np.intp]) -> Array:
        """The values of some of the tensors, by their places in this block."""
        if name in self.columns:
            return self.columns[name][chosen]
        if name == "nonfinite":
            return np.where(self.present[chosen], 0.0, np.nan)
        return np.full((len(chosen), len(self.steps)), np.nan)


def stage_columns(run: Run, stage: str, tensors: Sequence[int]) -> Sequence[SumBlock]:
    """The sums of these tensors, the same for every call as long as nothing is written to the run."""
    return run.remembered(("columns", stage, *tensors), lambda: _read(run, stage, tensors))


def _read(run: Run, stage: str, tensors: Sequence[int]) -> Sequence[SumBlock]:
    with run.snapshot():
        return _Shelf(_blocks(run, stage, tensors))


# -- from rows to columns --------------------------------------------------------------------


def _blocks(run: Run, stage: str, tensors: Sequence[int]) -> Iterator[SumBlock]:
    saved = saved_steps(run, stage)
    for ids in tensor_parts(run, stage, tensors):
        yield _block(ids, number_rows(run, stage, ids, (SCANNED_ROWS, *_NUMBERS)), saved)


def saved_steps(run: Run, stage: str) -> Steps:
    """The steps of the checkpoints of a stage."""
    rows = run.query("SELECT step FROM checkpoint WHERE stage = ? ORDER BY step", (stage,))
    return np.array([row[0] for row in rows], dtype=np.int64)


def previous_steps(steps: Steps, pairs: str, saved: Steps) -> Steps:
    """The step that each step is compared with, NO_PREVIOUS for none."""
    if pairs == "updates":
        return steps - 1
    at = np.searchsorted(saved, steps)
    known = np.isin(steps, saved) & (at > 0)
    return np.where(known, saved[np.maximum(at - 1, 0)] if len(saved) else NO_PREVIOUS, NO_PREVIOUS)


def _block(ids: NDArray[np.int64], table: Array, saved: Steps) -> SumBlock:
    """Rows as columns; where one step has several, the one of the latest θ′ has its sumsq."""
    tensor, step, before = table[0].astype(np.int64), table[1].astype(np.int64), table[2]
    scanned, sums = table[3] > 0, dict(zip(_NUMBERS, table[4:], strict=True))
    steps = np.unique(step)
    place = np.searchsorted(ids, tensor) * len(steps) + np.searchsorted(steps, step)
    shape = (len(ids), len(steps))
    present = np.zeros(shape, dtype=bool)
    present.flat[place] = True

    def dense(name: str, keep: NDArray[np.bool_]) -> Array | None:
        out = np.full(shape, np.nan)
        out.flat[place[keep]] = sums[name][keep]
        return None if np.isnan(out).all() else out

    known = ~np.isnan(sums["dot_init"])
    every = np.ones(len(step), dtype=bool)
    columns = {"sumsq": dense("sumsq", every)}
    columns |= {
        "dot_init": dense("dot_init", known & scanned),
        "live_init": dense("dot_init", known & ~scanned),
    }
    if sums["nonfinite"].any():
        columns["nonfinite"] = dense("nonfinite", every)
    for pairs in PAIRS:
        wanted = previous_steps(step, pairs, saved)
        paired = (before == wanted) & (wanted >= 0)
        columns |= {f"{pairs} {name}": dense(name, paired) for name in ("dot", "sumsq_delta")}
    return SumBlock(ids, steps, present, {name: kept for name, kept in columns.items() if kept is not None})


# -- keeping them ----------------------------------------------------------------------------


class _Shelf(Sequence[SumBlock]):
    """Blocks in memory; the columns of those that do not fit in are in a temporary file."""

    def __init__(self, blocks: Iterator[SumBlock]) -> None:
        self._blocks: list[SumBlock] = []
        self._file: IO[bytes] | None = None
        kept = 0
        for block in blocks:
            size = sum(column.nbytes for column in block.columns.values())
            kept += size
            self._blocks.append(block if kept <= KEPT_BYTES else self._spilled(block))

    def _spilled(self, block: SumBlock) -> SumBlock:
        with suppress(OSError):  # a full disk: the memory has to do
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the shelf)
                finalize(self, self._file.close)
            return SumBlock(
                block.tensors, block.steps, block.present, _FileColumns(self._file, block.columns)
            )
        return block

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: Any) -> Any:
        return self._blocks[index]


class _FileColumns(Mapping[str, Array]):
    """Columns of one shape in a file."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, Array]) -> None:
        self._file, self._places = file, dict[str, tuple[int, tuple[int, ...]]]()
        for name, column in columns.items():
            self._places[name] = file.seek(0, 2), column.shape
            column.tofile(file)
        file.flush()

    def __getitem__(self, name: str) -> Array:
        start, shape = self._places[name]
        self._file.seek(start)
        return np.fromfile(self._file, np.float64, int(np.prod(shape))).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
