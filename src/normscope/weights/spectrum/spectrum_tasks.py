"""What is still to be measured of each tensor, and measuring it along the checkpoints, in order.

Of one tensor, θ₀, θ′ and θ are in memory at a time, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.checkpoints.arrays import read_tensor
from normscope.errors import MatrixError
from normscope.rows import SpectrumRow
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.weights.live_spectra import LIVE
from normscope.weights.scan.plugin_measures import MeasuredStage
from normscope.weights.spectra.growth_directions import Directions, leading_directions, old_shares
from normscope.weights.spectra.matrix_spectrum import (
    MatrixSpectrum,
    SpectrumOptions,
    matrix_spectrum,
    pooled_spectrum,
)
from normscope.weights.spectrum.matrix_parts import Matrix, matrices, number_of_parts
from normscope.weights.spectrum.spectrum_figures import MatrixPlace, spectrum_row, unmeasured_row

WEIGHTS, UPDATE, GROWTH = "weights", "update", "growth"
KINDS = (WEIGHTS, UPDATE, GROWTH)


@dataclass(frozen=True)
class SpectrumTask:
    """One tensor of a stage: for checkpoints, by index, the kinds that are missing."""

    stage: MeasuredStage
    row: TensorRow
    wanted: Mapping[int, Sequence[str]]
    options: SpectrumOptions

    @property
    def step_cost(self) -> int:
        """Elements of one checkpoint."""
        return self.row.numel

    @property
    def cost(self) -> int:
        """Elements to measure."""
        return self.step_cost * len(self.wanted)

    def measure(self) -> Iterator[list[SpectrumRow]]:
        """The rows of one checkpoint after another."""
        first = self._read(0) if any(GROWTH in kinds for kinds in self.wanted.values()) else None
        before: tuple[int, Matrix] | None = None
        for i, kinds in sorted(self.wanted.items()):
            now = self._read(i)
            previous = before[1] if before and before[0] == i - 1 else None
            if UPDATE in kinds and previous is None:
                previous = self._read(i - 1)
            origins = {WEIGHTS: None, UPDATE: previous, GROWTH: first}
            yield [
                self._row(i, kind, part, now, origins[kind])
                for kind in kinds
                for part in range(number_of_parts(self.row))
            ]
            before = i, now

    def _read(self, i: int) -> NDArray[np.float32]:
        values = read_tensor(self.stage.checkpoints[i], self.row.name)
        return np.asarray(values.float().numpy(), dtype=np.float32)

    def _row(self, i: int, kind: str, part: int, now: Matrix, origin: Matrix | None) -> SpectrumRow:
        number = part if number_of_parts(self.row) > 1 else -1
        steps = self.stage.steps
        earlier = reference_step(kind, i, steps)
        place = MatrixPlace(steps[i], kind, self.row.id, earlier, number, self.stage.name)
        try:
            return self._measured(place, part, now, origin)
        except MatrixError as error:
            return unmeasured_row(place, str(error))

    def _measured(self, place: MatrixPlace, part: int, now: Matrix, origin: Matrix | None) -> SpectrumRow:
        current = matrices(self.row, now, part)
        if origin is None:
            return spectrum_row(place, self._spectrum(current), {})
        old = matrices(self.row, origin, part)
        changes = [a - b for a, b in zip(current, old, strict=True)]
        found = self._spectrum(changes)
        if len(current) > 1:
            return spectrum_row(place, found, {})
        shares = {
            name: old_shares(changes[0], self._directions(each))
            for name, each in (("old", old[0]), ("same", current[0]))
            if np.isfinite(each).all()
        }
        return spectrum_row(place, found, shares)

    def _spectrum(self, several: Sequence[Matrix]) -> MatrixSpectrum:
        if len(several) == 1:
            return matrix_spectrum(several[0], self.options)
        return pooled_spectrum(several, self.options)

    def _directions(self, matrix: Matrix) -> Directions:
        return leading_directions(matrix, seed=self.options.krylov.seed)


def reference_step(kind: str, i: int, steps: Sequence[int]) -> int:
    """The step that the i-th checkpoint is compared with."""
    if kind == WEIGHTS:
        return NO_PREVIOUS
    return steps[i - 1] if kind == UPDATE else steps[0]


def missing_tasks(
    run: Run,
    stage: MeasuredStage,
    rows: Sequence[TensorRow],
    kinds: Sequence[str],
    options: SpectrumOptions,
) -> list[SpectrumTask]:
    """The tensors with spectra that the run file does not have yet, or of another comparison."""
    sql = f"SELECT kind, step, tensor, prev_step FROM spectrum WHERE stage = ? AND NOT {LIVE}"
    done = set(run.query(sql, (stage.name,)))
    tasks = []
    for row in rows:
        wanted: dict[int, list[str]] = {}
        for i, step in enumerate(stage.steps):
            for kind in [kind for kind in kinds if i or kind == WEIGHTS]:
                if (kind, step, row.id, reference_step(kind, i, stage.steps)) not in done:
                    wanted.setdefault(i, []).append(kind)
        if wanted:
            tasks.append(SpectrumTask(stage, row, wanted, options))
    return tasks
