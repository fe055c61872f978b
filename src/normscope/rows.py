"""What a run file holds: its tables, and their rows as values."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE checkpoint(
    stage TEXT NOT NULL, step INTEGER NOT NULL, label TEXT NOT NULL, tokens INTEGER,
    source TEXT NOT NULL, format TEXT, bytes INTEGER, digest TEXT,
    PRIMARY KEY(stage, step));
CREATE TABLE tensor(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, component TEXT NOT NULL, layer INTEGER,
    role TEXT NOT NULL, shape TEXT NOT NULL, dtype TEXT NOT NULL, numel INTEGER NOT NULL,
    tied_to INTEGER REFERENCES tensor(id));
CREATE TABLE weight(
    stage TEXT NOT NULL, step INTEGER NOT NULL, prev_step INTEGER NOT NULL,
    tensor INTEGER NOT NULL REFERENCES tensor(id),
    sumsq REAL, dot REAL, sumsq_delta REAL, dot_init REAL, absmax REAL, nonfinite INTEGER,
    grad_sumsq REAL, grad_dot REAL, lr REAL, weight_decay REAL,
    PRIMARY KEY(stage, tensor, step, prev_step)) WITHOUT ROWID;
CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE saturation(
    stage TEXT NOT NULL, step INTEGER NOT NULL, module TEXT NOT NULL, layer INTEGER NOT NULL,
    cosine REAL, deviation REAL, tokens INTEGER, scale REAL, converged INTEGER, baseline REAL,
    PRIMARY KEY(stage, step, module)) WITHOUT ROWID;
CREATE TABLE head(
    stage TEXT NOT NULL, step INTEGER NOT NULL, module TEXT NOT NULL, layer INTEGER NOT NULL,
    head INTEGER NOT NULL, type TEXT, margin REAL, positions REAL, positions_deviation REAL,
    split REAL, share REAL, effective REAL, largest REAL, distance REAL, first REAL,
    PRIMARY KEY(stage, step, module, head)) WITHOUT ROWID;
CREATE TABLE scalar(
    stage TEXT NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
    PRIMARY KEY(stage, step, name)) WITHOUT ROWID;
CREATE TABLE artifact(kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(kind, key));
"""

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
class SaturationRow:
    """The saturation of one layer at one step; `module` is the block's path in the model."""

    step: int
    module: str
    layer: int
    cosine: float
    deviation: float
    tokens: int
    scale: float
    converged: bool
    baseline: float | None = None
    stage: str = ""


@dataclass(frozen=True)
class HeadRow:
    """What one attention head does at one step; the fields are explained in docs/saturation.md."""

    step: int
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
    stage: str = ""


@dataclass(frozen=True)
class ScalarRow:
    """One number logged at one step: loss, lr, weight_decay, tokens, …"""

    step: int
    name: str
    value: float
    stage: str = ""


Row = CheckpointRow | WeightRow | SaturationRow | HeadRow | ScalarRow
TABLE_OF: dict[type, str] = {
    CheckpointRow: "checkpoint",
    WeightRow: "weight",
    SaturationRow: "saturation",
    HeadRow: "head",
    ScalarRow: "scalar",
}
