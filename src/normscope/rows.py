"""The rows of a run file, as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from normscope._spectrum_rows import SpectrumRow
from normscope._training_rows import ActivationRow, AttentionRow, OptimizerRow, RateRow
from normscope.run_files.run_documents import read_column

__all__ = [
    "LIVE_PROBES", "NO_PREVIOUS", "OPTIMIZER_NOTES", "SATURATION_ERRORS", "SIMILARITY_NOTES", "STUDY_NOTES",
    "TABLE_OF", "ActivationRow", "AtStep", "AttentionRow", "CheckpointRow", "ComparedSteps", "HeadMeasures",
    "HeadRow", "LayerMeasures", "MeasureRow", "OptimizerRow", "RateRow", "Row", "SaturationRow", "ScalarRow",
    "SimilarityMeasures", "SimilarityRow", "SpectrumRow", "TensorRow", "WeightRow", "insertion", "step_key",
]  # fmt: skip

NO_PREVIOUS = -1  # prev_step of a row that has no predecessor: the first checkpoint of a stage


@dataclass(frozen=True)
class CheckpointRow:
    """One checkpoint of the series; `stage` is "" unless the series has named stages.

    >>> ns.CheckpointRow(step=1000, label="step_1000", source="checkpoints/step_1000.npz").stage
    ''
    """

    step: int
    label: str
    source: str
    stage: str = ""
    tokens: int | None = None
    format: str | None = None
    bytes: int | None = None
    digest: str | None = None
    stamp: str | None = None


@dataclass(frozen=True)
class TensorRow:
    """One parameter; `tied_to` names the tensor whose storage it shares and that is counted instead.

    >>> ns.TensorRow(0, "h.0.mlp.up.weight", "model", 0, "mlp in", (64, 16), "float32", 1024).numel
    1024
    """

    id: int
    name: str
    component: str
    layer: int | None
    role: str
    shape: tuple[int, ...]
    dtype: str
    numel: int
    tied_to: int | None = None


@dataclass(frozen=True)
class WeightRow:
    """The additive sums of one tensor at one step against one earlier step.

    `prev_step` is −1 where there is none; then `dot` and `sumsq_delta` are None.

    >>> ns.WeightRow(step=1000, prev_step=-1, tensor=0, sumsq=4.0).sumsq
    4.0
    """

    step: int
    prev_step: int
    tensor: int
    sumsq: float
    dot: float | None = None
    sumsq_delta: float | None = None
    dot_init: float | None = None
    absmax: float | None = None
    nonfinite: int = 0
    grad_sumsq: float | None = None
    grad_dot: float | None = None
    lr: float | None = None
    weight_decay: float | None = None
    stage: str = ""


@dataclass(frozen=True)
class AtStep:
    """A row's training step, which comes first among its fields."""

    step: int


@dataclass(frozen=True)
class LayerMeasures:
    """What is measured on one layer; `module` is the block's path in the model."""

    module: str
    layer: int
    cosine: float
    deviation: float
    tokens: int
    scale: float
    converged: bool | None
    baseline: float | None = None
    settles_at: float | None = None


@dataclass(frozen=True)
class SaturationRow(LayerMeasures, AtStep):
    """The saturation of one layer at one step.

    >>> ns.SaturationRow(1000, "h.0", 1, 0.98, 0.01, 500, 1024.0, converged=True).cosine
    0.98
    """

    stage: str = ""


@dataclass(frozen=True)
class SimilarityMeasures:
    """How similar the states of one layer are in two models; None where a measure means nothing."""

    module: str
    layer: int
    cka: float | None
    cka_debiased: float | None
    pwcca: float | None
    tokens: int


@dataclass(frozen=True)
class ComparedSteps(AtStep):
    """A row's training step, and the one that it is compared with: the "previous" or the "last"."""

    other: str
    other_step: int


@dataclass(frozen=True)
class SimilarityRow(SimilarityMeasures, ComparedSteps):
    """How similar one layer's states at one step are to those at another step of the same stage.

    >>> ns.SimilarityRow(1000, "last", 5000, "h.0", 1, 0.91, 0.9, None, 500).other_step
    5000
    """

    stage: str = ""


OPTIMIZER_NOTES = "optimizer"
"""The kind of the artifact, by stage, that says what the optimizer of a lab run does to which tensors."""

SIMILARITY_NOTES = "similarity-settings"
"""The kind of the artifacts that say which states were compared, by `step_key`."""

SATURATION_ERRORS = "saturation-error"
"""The kind of the artifacts, by step, that say why a training did not measure saturation there."""

LIVE_PROBES = "live-probe"
"""The kind of the artifacts, by `step_key`, of steps whose saturation and heads a live probe measured."""

STUDY_NOTES = "saturation-settings"
"""The kind of the artifacts that say what was measured by running a model, by `step_key`."""


def step_key(stage: str, step: int) -> str:
    """The key of a step among a run's artifacts; the stage is part of it only if it has a name.

    >>> step_key("", 1000), step_key("stage2", 1000)
    ('1000', 'stage2/1000')
    """
    return f"{stage}/{step}" if stage else str(step)


@dataclass(frozen=True)
class HeadMeasures:
    """What is measured on one attention head; the fields are explained in docs/json.md."""

    module: str
    layer: int
    head: int
    type: str
    margin: float
    positions: float
    positions_deviation: float
    split: float
    share: float
    effective: float
    largest: float
    distance: float
    first: float
    converged: bool | None = None
    settles_at: float | None = None
    unsettled: float | None = None
    overlap: float | None = None
    output: float | None = None
    attends: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.attends, str):  # as a run file stores it
            object.__setattr__(self, "attends", read_column(None, "attends", self.attends))


@dataclass(frozen=True)
class HeadRow(HeadMeasures, AtStep):
    """What one attention head does at one step.

    >>> numbers = {"positions_deviation": 0.0, "split": 0.0, "share": 0.2, "effective": 3.1, "first": 0.1}
    >>> measured = {"positions": 1.0, "largest": 0.6, "distance": 2.0, **numbers}
    >>> ns.HeadRow(1000, "h.0.attn", 1, 3, "argmax", 0.1, **measured).example_key
    '1000/h.0.attn/3'
    """

    stage: str = ""

    @property
    def example_key(self) -> str:
        """The key of this head's attention map among the run's artifacts of the kind "attention"."""
        return f"{step_key(self.stage, self.step)}/{self.module}/{self.head}"


@dataclass(frozen=True)
class ScalarRow:
    """One number logged at one step: loss, lr, weight_decay, tokens, …

    >>> with ns.Run.create("run.db") as run:
    ...     with run.transaction():
    ...         run.write([ns.ScalarRow(step=10, name="loss", value=2.5)])
    ...     list(run.table(ns.ScalarRow))
    [{'step': 10, 'name': 'loss', 'value': 2.5, 'stage': ''}]
    """

    step: int
    name: str
    value: float
    stage: str = ""


@dataclass(frozen=True)
class MeasureRow:
    """The value of a plugin's measure for one tensor at one step; None where it is not finite.

    >>> ns.MeasureRow(step=1000, tensor=0, name="rank", value=12.0).name
    'rank'
    """

    step: int
    tensor: int
    name: str
    value: float | None
    stage: str = ""


Row = (
    CheckpointRow
    | WeightRow
    | SaturationRow
    | HeadRow
    | SimilarityRow
    | ScalarRow
    | MeasureRow
    | OptimizerRow
    | RateRow
    | AttentionRow
    | ActivationRow
    | SpectrumRow
)
TABLE_OF: dict[type, str] = {
    CheckpointRow: "checkpoint",
    WeightRow: "weight",
    SaturationRow: "saturation",
    HeadRow: "head",
    SimilarityRow: "similarity",
    ScalarRow: "scalar",
    MeasureRow: "measure",
    OptimizerRow: "optimizer",
    RateRow: "rate",
    AttentionRow: "attention",
    ActivationRow: "activation",
    SpectrumRow: "spectrum",
}


def insertion(kind: type, rows: Iterable[Row]) -> tuple[str, Iterable[tuple[Any, ...]]]:
    """The statement that inserts rows of this kind, or replaces those with their keys; and their values."""
    names = [field.name for field in fields(kind)]
    marks = ", ".join("?" * len(names))
    statement = f"INSERT OR REPLACE INTO {TABLE_OF[kind]}({', '.join(names)}) VALUES({marks})"
    return statement, (tuple(map(_stored, vars(row).values())) for row in rows)


def _stored(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping) else value
