"""The recorded spectra of one kind: which matrices, at which steps, and their figures as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import Place
from normscope.rows import SpectrumRow
from normscope.run import Run, TensorRow

Array = NDArray[np.float64]
WEIGHTS, UPDATE, GROWTH = "weights", "update", "growth"
HEAD_KINDS = ("qk", "ov")
MOST_STEPS = 60
"""Steps that are read of a long series: a spectrum takes some kilobytes, and figures show no more."""


@dataclass(frozen=True)
class SpectralMatrix:
    """One matrix: a tensor, or a part of one (an expert, a head)."""

    tensor: TensorRow
    part: int

    @property
    def layer(self) -> str:
        """The layer as other tables name it: "03", "encoder/03", "outside"."""
        return Place(self.tensor.component, self.tensor.layer, self.tensor.role, known=True).group

    @property
    def name(self) -> str:
        """ "layer 03 mlp in"; with the number of the part, if the tensor has several."""
        part = f" {self.part}" if self.part >= 0 else ""
        where = "" if self.tensor.layer is None else f"layer {self.layer} "
        return f"{where}{self.tensor.role}{part}"


@dataclass(frozen=True)
class SpectralHistory:
    """Spectra of one kind in one stage: rows by (step, matrix); not every matrix has one at every step."""

    kind: str
    steps: tuple[int, ...]
    matrices: tuple[SpectralMatrix, ...]
    rows: Mapping[tuple[int, SpectralMatrix], SpectrumRow]

    def values(self, figure: Callable[[SpectrumRow], float | None]) -> Array:
        """A figure of each row, [steps, matrices]; NaN where there is none."""
        found = np.full((len(self.steps), len(self.matrices)), np.nan)
        for i, step in enumerate(self.steps):
            for j, matrix in enumerate(self.matrices):
                row = self.rows.get((step, matrix))
                value = figure(row) if row else None
                found[i, j] = np.nan if value is None else value
        return found

    def column(self, name: str) -> Array:
        """A column of the table, [steps, matrices]."""
        return self.values(lambda row: getattr(row, name))

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layers, in the order of the matrices."""
        return tuple(dict.fromkeys(matrix.layer for matrix in self.matrices))

    def in_layer(self, layer: str) -> NDArray[np.bool_]:
        """Which matrices belong to a layer."""
        return np.array([matrix.layer == layer for matrix in self.matrices])


def history(kind: str, rows: Iterable[SpectrumRow], tensors: Iterable[TensorRow]) -> SpectralHistory | None:
    """The rows of one kind that were measured; None if there are none."""
    named = {tensor.id: tensor for tensor in tensors}
    found: dict[tuple[int, SpectralMatrix], SpectrumRow] = {}
    known: dict[tuple[int, int], SpectralMatrix] = {}
    for row in rows:
        if row.kind == kind and row.spectral_norm is not None and row.tensor in named:
            key = row.tensor, row.part
            matrix = known.setdefault(key, SpectralMatrix(named[row.tensor], row.part))
            found[row.step, matrix] = row
    if not found:
        return None
    matrices = [known[key] for key in sorted(known, key=lambda key: (named[key[0]].id, key[1]))]
    return SpectralHistory(kind, tuple(sorted({step for step, _ in found})), tuple(matrices), found)


def recorded_histories(run: Run, stage: str) -> dict[str, SpectralHistory]:
    """Every kind of spectra in a stage of a run, at MOST_STEPS steps at most."""
    places = list(run.query("SELECT DISTINCT kind, step FROM spectrum WHERE stage = ?", (stage,)))
    tensors, found = run.tensors(), {}
    for kind in dict.fromkeys(kind for kind, _ in places):
        steps = _thinned(sorted(step for other, step in places if other == kind))
        rows = _read(run, stage, kind, steps)
        if (several := history(kind, rows, tensors)) is not None:
            found[kind] = several
    return found


def _thinned(steps: Sequence[int]) -> list[int]:
    kept = np.unique(np.rint(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS))).astype(int))
    return [steps[i] for i in kept]


def _read(run: Run, stage: str, kind: str, steps: Sequence[int]) -> list[SpectrumRow]:
    names = ", ".join(field.name for field in fields(SpectrumRow))
    marks = ", ".join("?" * len(steps))
    sql = f"SELECT {names} FROM spectrum WHERE stage = ? AND kind = ? AND step IN ({marks})"
    return [SpectrumRow(*values) for values in run.query(sql, (stage, kind, *steps))]
