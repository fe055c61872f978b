"""The rows of a run file, as values."""

from __future__ import annotations

from dataclasses import dataclass

NO_PREVIOUS = -1  # prev_step of a row that has no predecessor: the first checkpoint of a stage


@dataclass(frozen=True)
class CheckpointRow:
    """One checkpoint of the series; `stage` is "" unless the series has named stages."""

    step: int
    label: str
    source: str
    stage: str = ""
    tokens: int | None = None
    format: str | None = None
    bytes: int | None = None
    digest: str | None = None


@dataclass(frozen=True)
class TensorRow:
    """One parameter; `tied_to` names the tensor whose storage it shares and that is counted instead."""

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

    `prev_step` is NO_PREVIOUS where there is none; then `dot` and `sumsq_delta` are None.
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


@dataclass(frozen=True)
class SaturationRow(LayerMeasures, AtStep):
    """The saturation of one layer at one step."""

    stage: str = ""


def step_key(stage: str, step: int) -> str:
    """The key of a step among a run's artifacts; the stage is part of it only if it has a name.

    >>> step_key("", 1000), step_key("stage2", 1000)
    ('1000', 'stage2/1000')
    """
    return f"{stage}/{step}" if stage else str(step)


@dataclass(frozen=True)
class HeadMeasures:
    """What is measured on one attention head; the fields are explained in docs/saturation.md."""

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


@dataclass(frozen=True)
class HeadRow(HeadMeasures, AtStep):
    """What one attention head does at one step."""

    stage: str = ""

    @property
    def example_key(self) -> str:
        """The key of this head's attention map among the run's artifacts of the kind "attention"."""
        return f"{step_key(self.stage, self.step)}/{self.module}/{self.head}"


@dataclass(frozen=True)
class ScalarRow:
    """One number logged at one step: loss, lr, weight_decay, tokens, …"""

    step: int
    name: str
    value: float
    stage: str = ""


@dataclass(frozen=True)
class MeasureRow:
    """The value of a plugin's measure for one tensor at one step; None where it is not finite."""

    step: int
    tensor: int
    name: str
    value: float | None
    stage: str = ""


Row = CheckpointRow | WeightRow | SaturationRow | HeadRow | ScalarRow | MeasureRow
TABLE_OF: dict[type, str] = {
    CheckpointRow: "checkpoint",
    WeightRow: "weight",
    SaturationRow: "saturation",
    HeadRow: "head",
    ScalarRow: "scalar",
    MeasureRow: "measure",
}
