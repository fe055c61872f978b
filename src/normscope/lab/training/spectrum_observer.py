"""Singular values of the matrices of a model, measured during its training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import nn

from normscope.anatomy import in_scope
from normscope.errors import MatrixError
from normscope.lab.training.callback import Callback
from normscope.lab.training.trainer import Trainer
from normscope.live.model.sharding import local_parameters, tied_names
from normscope.rows import NO_PREVIOUS, SpectrumRow, TensorRow
from normscope.schedule import Schedule
from normscope.weights.spectra.matrix_spectrum import matrix_spectrum, pooled_spectrum
from normscope.weights.spectrum.matrix_parts import Matrix, has_matrices, matrices, number_of_parts
from normscope.weights.spectrum.spectrum_figures import MatrixPlace, spectrum_row, unmeasured_row
from normscope.weights.spectrum.spectrum_recorder import as_measures
from normscope.weights.spectrum.spectrum_tasks import WEIGHTS
from normscope.weights.tensor_rows import add_tensors


class SpectrumObserver(Callback):
    """Measures the spectra of the body's matrices, as `normscope spectrum` does of checkpoints."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def on_start(self, trainer: Trainer) -> None:
        """Write which tensors there are, and measure the untrained ones."""
        found, _ = local_parameters(trainer.model)
        infos = [item.info for item in found]
        with trainer.run.transaction():
            tensors = add_tensors(trainer.run, infos, tied_names(infos))
        alive = [row for row in tensors if row.tied_to is None and has_matrices(row)]
        chosen = in_scope(alive, "body", lambda row: (row.role, row.shape))
        known = {item.info.name: item.parameter for item in found}
        self._matrices = [(row, known[row.name]) for row in chosen]
        if trainer.step == 0 and 0 in self._schedule:
            self._measure(trainer)

    def on_step(self, trainer: Trainer) -> None:
        """Measure at the steps of the schedule, and at the last step."""
        if trainer.step in self._schedule or trainer.step == trainer.config.steps:
            self._measure(trainer)

    def _measure(self, trainer: Trainer) -> None:
        rows = [found for each in self._matrices for found in _rows(*each, trainer.step)]
        trainer.write(rows)
        trainer.write([measure for row in rows for measure in as_measures(row)])


def _rows(row: TensorRow, parameter: nn.Parameter, step: int) -> Iterator[SpectrumRow]:
    """The rows of one tensor at one step."""
    values = parameter.detach().float().cpu().numpy()
    parts = number_of_parts(row)
    for part in range(parts):
        place = MatrixPlace(step, WEIGHTS, row.id, NO_PREVIOUS, part if parts > 1 else -1, "")
        try:
            yield _row(place, matrices(row, np.asarray(values, dtype=np.float32), part))
        except MatrixError as error:
            yield unmeasured_row(place, str(error))


def _row(place: MatrixPlace, several: list[Matrix]) -> SpectrumRow:
    found = matrix_spectrum(several[0]) if len(several) == 1 else pooled_spectrum(several)
    return spectrum_row(place, found, {})
