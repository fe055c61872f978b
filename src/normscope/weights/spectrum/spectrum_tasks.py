"""What is still to be measured of each tensor, and measuring it along the checkpoints, in order.

Of one tensor, θ and one change are in memory at a time, in float32: what a change is measured from is
read again, and the change takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.checkpoints.arrays import read_tensor
from normscope.errors import MatrixError
from normscope.rows import SpectrumRow
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.weights.live_spectra import LIVE
from normscope.weights.scan.plugin_measures import MeasuredStage
from normscope.weights.spectra.growth_directions import LEADING, leading_directions, shares_of
from normscope.weights.spectra.matrix_spectrum import (
    MatrixSpectrum,
    SpectrumOptions,
    matrix_spectrum,
    pooled_spectrum,
)
from normscope.weights.spectra.weighted_values import Directions
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
        known = _KnownDirections(self.options.krylov.seed)
        steps = self.stage.steps
        for i, kinds in sorted(self.wanted.items()):
            now = self._read(i)
            known.keep_only(steps[0], steps[max(i - 1, 0)])
            yield [row for kind in kinds for row in self._rows(i, kind, now, known)]

    def _read(self, i: int) -> NDArray[np.float32]:
        """A tensor in new memory, which a change may take the place of."""
        values = read_tensor(self.stage.checkpoints[i], self.row.name)
        return np.asarray(values.float().numpy(), dtype=np.float32)

    def _rows(self, i: int, kind: str, now: Matrix, known: _KnownDirections) -> list[SpectrumRow]:
        """The parts of a tensor at one checkpoint."""
        number, steps = number_of_parts(self.row), self.stage.steps
        earlier = reference_step(kind, i, steps)
        origin = None if kind == WEIGHTS else self._read(steps.index(earlier))
        return [
            self._row(
                MatrixPlace(
                    steps[i], kind, self.row.id, earlier, part if number > 1 else -1, self.stage.name
                ),
                part,
                now,
                origin,
                known,
            )
            for part in range(number)
        ]

    def _row(
        self, place: MatrixPlace, part: int, now: Matrix, origin: Matrix | None, known: _KnownDirections
    ) -> SpectrumRow:
        try:
            return self._measured(place, part, now, origin, known)
        except MatrixError as error:
            return unmeasured_row(place, str(error))

    def _measured(
        self, place: MatrixPlace, part: int, now: Matrix, origin: Matrix | None, known: _KnownDirections
    ) -> SpectrumRow:
        current = matrices(self.row, now, part)
        if origin is None:
            spectrum = self._spectrum(current, LEADING)
            known.remember(place.step, part, spectrum.directions)
            return spectrum_row(place, spectrum, {})
        old = matrices(self.row, origin, part)
        directions = {}
        if len(current) == 1:
            directions["old"] = known.of(old[0], place.prev_step, part)
            directions["same"] = known.of(current[0], place.step, part)
        changes = [np.subtract(a, b, out=b) for a, b in zip(current, old, strict=True)]
        found = self._spectrum(changes)
        finite = {name: each for name, each in directions.items() if each}
        shares = shares_of(changes[0], list(finite.values()))
        return spectrum_row(place, found, dict(zip(finite, shares, strict=True)))

    def _spectrum(self, several: Sequence[Matrix], directions: int = 0) -> MatrixSpectrum:
        if len(several) == 1:
            krylov = replace(self.options.krylov, directions=directions)
            return matrix_spectrum(several[0], replace(self.options, krylov=krylov))
        return pooled_spectrum(several, self.options)


class _KnownDirections:
    """The leading directions of a tensor at steps that are needed again: none are measured twice."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._found: dict[tuple[int, int], Directions | None] = {}

    def of(self, matrix: Matrix, step: int, part: int) -> Directions | None:
        """Those of a matrix; None if it is not finite."""
        if (step, part) not in self._found:
            finite = bool(np.isfinite(matrix).all())
            self._found[step, part] = leading_directions(matrix, seed=self._seed) if finite else None
        return self._found[step, part]

    def remember(self, step: int, part: int, found: Directions | None) -> None:
        """Keep those that a spectrum of the weights has found on the way."""
        if found is not None:
            self._found[step, part] = found

    def keep_only(self, *steps: int) -> None:
        """Forget those of other steps."""
        self._found = {key: each for key, each in self._found.items() if key[0] in steps}


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
