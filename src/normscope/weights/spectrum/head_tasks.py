"""What is still to be measured of each attention, and measuring its heads along the checkpoints.

A row is about one head: `tensor` is its query projection (or the fused one) for qk, its output projection
for ov, and `part` the number of the head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.checkpoints.arrays import read_tensor
from normscope.errors import MatrixError
from normscope.rows import MeasureRow, SpectrumRow
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.weights.heads.attention_facts import AttentionFacts, AttentionSettings
from normscope.weights.heads.attention_tensors import AttentionTensors, find_attention, require_part
from normscope.weights.heads.head_bounds import LogitBounds, logit_bounds
from normscope.weights.heads.head_matrices import HeadMatrices, Matrix, head_matrices
from normscope.weights.scan.plugin_measures import MeasuredStage
from normscope.weights.spectra.head_products import product_values
from normscope.weights.spectra.spectral_figures import directions, effective_rank, nuclear_norm
from normscope.weights.spectra.weighted_values import Array
from normscope.weights.spectrum.spectrum_figures import MatrixPlace, unmeasured_row

QK, OV = "qk", "ov"
HEAD_KINDS = (QK, OV)
HEAD_MEASURES = {QK: "qk-spectral-norm", OV: "ov-spectral-norm"}
"""Measures of a run that spectra of heads give: the largest σ₁ of the heads of an attention."""
LOGIT_BOUND = "qk-logit-bound"


@dataclass(frozen=True)
class HeadTask:
    """One attention of a stage: for checkpoints, by index, the kinds that are missing."""

    stage: MeasuredStage
    attention: AttentionTensors
    facts: AttentionFacts | str
    wanted: Mapping[int, Sequence[str]]
    top: int

    @property
    def row(self) -> TensorRow:
        """The tensor that the progress names."""
        return self.attention.first

    @property
    def cost(self) -> int:
        """Elements to read and multiply."""
        return self.step_cost * len(self.wanted)

    @property
    def step_cost(self) -> int:
        """Elements of one checkpoint."""
        return sum(row.numel for row in self.attention.matrices.values())

    def measure(self) -> Iterator[list[SpectrumRow]]:
        """The rows of one checkpoint after another."""
        for i, kinds in sorted(self.wanted.items()):
            try:
                yield self._rows(i, kinds)
            except MatrixError as error:
                yield [unmeasured_row(self._place(i, kind, 0), str(error)) for kind in kinds]

    def _rows(self, i: int, kinds: Sequence[str]) -> list[SpectrumRow]:
        if isinstance(self.facts, str):
            raise MatrixError(self.facts)
        if self.attention.why:
            raise MatrixError(self.attention.why)
        read = _Reader(self.stage, i)
        heads = head_matrices(self.attention, self.facts, self.stage.checkpoints[i].format, read)
        bounds = (
            logit_bounds(self.attention, self.facts, heads, self.stage.rows, read) if QK in kinds else None
        )
        rows = []
        for kind in kinds:
            detail = _HeadDetail(self.facts, heads, bounds if kind == QK else None)
            rows += [
                self._row(self._place(i, kind, head), heads, head, detail) for head in range(heads.heads)
            ]
        return rows

    def _place(self, i: int, kind: str, head: int) -> MatrixPlace:
        tensor = self.attention.first if kind == QK else self.attention.output or self.attention.first
        return MatrixPlace(self.stage.steps[i], kind, tensor.id, NO_PREVIOUS, head, self.stage.name)

    def _row(self, place: MatrixPlace, heads: HeadMatrices, head: int, detail: _HeadDetail) -> SpectrumRow:
        try:
            require_part(self.attention, place.kind)
            left, right = detail.factors(place.kind, head)
            wrong = sum(each.size - int(np.isfinite(each).sum()) for each in (left, right))
            if wrong:
                raise MatrixError(f"{wrong:,} entries of head {head} are NaN or infinite")
        except MatrixError as error:
            return unmeasured_row(place, str(error))
        scale = detail.scale if place.kind == QK else 1.0
        values = product_values(left, right) * scale
        return _head_row(place, values, detail.document(place.kind, head, left, right), self.top)


@dataclass(frozen=True)
class _Reader:
    """Reads tensors of one checkpoint, each of them once for all heads."""

    stage: MeasuredStage
    index: int

    def __call__(self, row: TensorRow) -> Matrix:
        values = read_tensor(self.stage.checkpoints[self.index], row.name)
        return np.asarray(values.float().numpy(), dtype=np.float32)


@dataclass(frozen=True)
class _HeadDetail:
    """What is said about a head beside its singular values."""

    facts: AttentionFacts
    heads: HeadMatrices
    bounds: LogitBounds | None

    @property
    def scale(self) -> float:
        """What logits are multiplied with."""
        return float(self.facts.scale or self.heads.queries.shape[1] ** -0.5)

    def factors(self, kind: str, head: int) -> tuple[Matrix, Matrix]:
        """Two matrices [size, width] whose product, the first transposed, is that of the head."""
        group = self.heads.group(head)
        if kind == QK:
            return self.heads.queries[head], self.heads.keys[group]
        assert self.heads.output is not None
        return self.heads.output[head], self.heads.values[group]

    def document(self, kind: str, head: int, left: Matrix, right: Matrix) -> dict[str, Any]:
        """The detail of a row."""
        found: dict[str, Any] = {"key_head": self.heads.group(head), "head_size": len(left)}
        longest = _largest(left) * _largest(right)
        if kind == OV:
            return found | {"factors": longest}
        found |= {"factors": longest * self.scale, "rotary": self.facts.rotary}
        found |= {"scale": self.scale, "scale_assumed": self.facts.assumed}
        bounds = self.bounds
        if bounds is None or not bounds.values:
            return found | {"logit_bound": None, "no_bound": bounds.why if bounds else ""}
        bound = bounds.values[head] * self.scale
        if not math.isfinite(bound):
            return found | {"logit_bound": None, "no_bound": "the norm before it, or a bias, is not finite"}
        return found | {"logit_bound": bound, "qk_norm": bounds.normed}


def _largest(matrix: Matrix) -> float:
    return float(np.linalg.norm(matrix.astype(np.float64), 2))


def _head_row(place: MatrixPlace, values: Array, detail: Mapping[str, Any], top: int) -> SpectrumRow:
    """The row of a head from all its singular values; what depends on entries is not known."""
    ones = np.ones(len(values))
    largest, energy = float(values[0]), float(np.sum(values**2))
    known = largest > 0
    kept = [float(f"{value:.9g}") for value in values[:top]]
    error = float(len(values) * np.finfo(np.float64).eps * detail["factors"])
    return SpectrumRow(
        **vars(place),
        method="exact",
        spectral_norm=largest,
        norm=float(np.sqrt(energy)),
        stable_rank=energy / largest**2 if known else None,
        effective_rank=effective_rank(values, ones) if known else None,
        nuclear_norm=nuclear_norm(values, ones),
        directions_half=directions(0.5)(values, ones) if known else None,
        directions_most=directions(0.9)(values, ones) if known else None,
        detail={
            "top": kept,
            "top_errors": [error] * len(kept),
            "error": {"spectral_norm": error},
            **detail,
        },
    )


def head_tasks(
    run: Run, stage: MeasuredStage, kinds: Sequence[str], settings: AttentionSettings, top: int
) -> list[HeadTask]:
    """The attentions of a stage with heads that the run file does not have yet."""
    sql = "SELECT DISTINCT kind, step, tensor FROM spectrum WHERE stage = ?"
    done = set(run.query(sql, (stage.name,)))
    known = {row.id: row for row in run.tensors()}
    tasks = []
    for attention in find_attention(known[row.id] for row in stage.rows):
        tensors = {QK: attention.first, OV: attention.output or attention.first}
        wanted = {
            i: missing
            for i, step in enumerate(stage.steps)
            if (missing := [kind for kind in kinds if (kind, step, tensors[kind].id) not in done])
        }
        if wanted:
            tasks.append(HeadTask(stage, attention, _facts(settings, attention), wanted, top))
    return tasks


def _facts(settings: AttentionSettings, attention: AttentionTensors) -> AttentionFacts | str:
    try:
        return settings.facts(attention.first.component, attention.first.layer)
    except MatrixError as error:
        return str(error)


def head_measures(rows: Sequence[SpectrumRow]) -> list[MeasureRow]:
    """The largest σ₁ and bound of the heads of each attention, which fits and figures read.

    `rows` are all heads of an attention at a step; one that could not be measured leaves none.
    """
    groups: dict[tuple[int, str, int, str], list[SpectrumRow]] = {}
    for row in rows:
        if row.kind in HEAD_KINDS:
            groups.setdefault((row.step, row.kind, row.tensor, row.stage), []).append(row)
    found = []
    for (step, kind, tensor, stage), heads in groups.items():
        found.append(
            MeasureRow(step, tensor, HEAD_MEASURES[kind], _highest([h.spectral_norm for h in heads]), stage)
        )
        if kind == QK:
            bounds = [(head.detail or {}).get("logit_bound") for head in heads]
            if _highest(bounds) is not None:
                found.append(MeasureRow(step, tensor, LOGIT_BOUND, _highest(bounds), stage))
    return found


def _highest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if values and len(known) == len(values) else None


def head_notes(rows: Sequence[SpectrumRow], kinds: Sequence[str]) -> list[str]:
    """What is to be said about the heads that were measured: what is missing, assumed or without a bound."""
    notes = [
        f"no {kind}: no attention was found among the tensors"
        for kind in HEAD_KINDS
        if kind in kinds and not any(row.kind == kind for row in rows)
    ]
    details = [row.detail or {} for row in rows if row.kind == QK]
    if any(detail.get("scale_assumed") for detail in details):
        notes.append("qk is divided by √(head size), as most models do: no config.json names the family")
    if any(detail.get("rotary") is None and "rotary" in detail for detail in details):
        notes.append("whether queries and keys are rotated by their positions is not known")
    if any(detail.get("qk_norm") for detail in details):
        notes.append("queries and keys pass through norms, so logits follow those norms and not σ₁ of qk")
    whys = dict.fromkeys(str(detail["no_bound"]) for detail in details if detail.get("no_bound"))
    return [*notes, *(f"no bound of the logits: {why}" for why in whys)]
