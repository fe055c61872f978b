"""Rows that only a training in progress writes: optimizers, rates, attention, activations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OptimizerRow:
    """Which optimizer updates a tensor from one step on, written when it changes.

    `kind` is the optimizer's class, `momentum` its β (Adam's β₁), None if unknown. `coupled` says that weight
    decay is added to the gradient, `param_group` the number of the tensor's parameter group.

    >>> ns.OptimizerRow(step=1, tensor=0, kind="AdamW", momentum=0.9, coupled=False).kind
    'AdamW'
    """

    step: int
    tensor: int
    kind: str
    momentum: float | None
    coupled: bool
    stage: str = ""
    param_group: int | None = None


@dataclass(frozen=True)
class RateRow:
    """Learning rate and weight decay of a parameter group from one step on, written when they change.

    >>> ns.RateRow(step=100, param_group=0, lr=3e-4, weight_decay=0.1).lr
    0.0003
    """

    step: int
    param_group: int
    lr: float | None
    weight_decay: float | None
    stage: str = ""


@dataclass(frozen=True)
class AttentionRow:
    """How sharply one head of a model in training attends at one step.

    `logit` is its largest attention score before softmax, `entropy` the mean entropy of its attention rows
    in nats, `relative_entropy` the mean of each row's entropy divided by that of equal weights, over rows
    with at least two visible positions. `source` says on what: the "probe" batch, or the "training" batch.

    >>> ns.AttentionRow(500, "h.0.attn", 1, 3, 7.5, entropy=1.1, relative_entropy=0.4, source="probe").logit
    7.5
    """

    step: int
    module: str
    layer: int
    head: int
    logit: float
    entropy: float
    relative_entropy: float | None
    source: str
    stage: str = ""


@dataclass(frozen=True)
class ActivationRow:
    """The size of a model's activations at one step: the mean over tokens of a vector's norm.

    `kind` is "residual" for the residual stream after a layer (layer 0: before the first), "output" for
    the output logits.

    >>> ns.ActivationRow(500, "residual", "h.0", 1, norm=12.5, tokens=400).layer
    1
    """

    step: int
    kind: str
    module: str
    layer: int
    norm: float
    tokens: int
    stage: str = ""
