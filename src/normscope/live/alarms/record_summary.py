"""The numbers of one record that the alarms depend on, and those of the records before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KEPT = 33
"""Records that the rules can look back on, with the newest."""


@dataclass(frozen=True)
class ModelParts:
    """What a record is summed over: whole scopes first, then the groups (layers, modules outside layers)."""

    scopes: tuple[str, ...]
    """In words: the body, all parameters."""
    groups: tuple[str, ...]
    """In words: layer 03, tok_emb, lm_head."""
    layers: NDArray[np.bool_]
    """Which of the groups are layers."""

    @property
    def names(self) -> tuple[str, ...]:
        """The scopes, then the groups."""
        return self.scopes + self.groups


@dataclass(frozen=True)
class NonFiniteValues:
    """Where NaN or infinite values are in a record."""

    parameters: Sequence[tuple[str, int]] = ()
    """Parameters in the model's order, and how many values."""
    gradients: Sequence[tuple[str, int]] = ()
    """Parameters whose gradients have them, in the order of the backward pass, and how many values."""
    finite_before: int = 0
    """Gradients that the backward pass made before the first of those, all finite."""


@dataclass(frozen=True)
class ForwardLook:
    """What was seen of a forward pass: whether the output has NaN, and which module had it first."""

    finite: bool
    module: str = ""
    """The first module in the order of the pass; empty if no output was still there to be looked at."""
    after: str = ""
    """The last module before it whose output was finite."""
    input_finite: bool | None = None
    parameters: tuple[str, ...] = ()
    """Its own parameters that have such values."""


@dataclass(frozen=True)
class RecordSummary:
    """One record by parts: arrays have one value for each of `parts.names`, NaN where it was not measured."""

    step: int
    parts: ModelParts
    norm: Array
    gradient: Array
    alignment: Array
    lr: Array
    step_growth: Array
    """Log growth of the norm by the one update that was recorded."""
    frozen: NDArray[np.bool_]
    """Parts of which no parameter is to get a gradient."""
    nonfinite: NonFiniteValues | None = None
    forward: ForwardLook | None = None
    gradients_known: bool = True
    """Whether gradients were measured."""


@dataclass(frozen=True)
class PastRecord:
    """A record in the form in which rules compare it: logarithms, and the time as the optimizer counts it."""

    step: int
    log_norm: Array
    gradient: float
    """The logarithm of the gradient norm of all parameters."""
    ratios: list[float]
    """By scope, the logarithm of the gradient norm relative to the parameter norm."""
    alignment: list[float]
    """By scope."""
    explained: Array
    """Log growth of the norm up to here by the optimizers' updates, as far as they were recorded."""
    time: Array
    """The sum of the learning rates up to here, by part; steps if they are not known."""


class RecordHistory:
    """The last records, oldest first; begins anew when the parts change."""

    def __init__(self) -> None:
        self.records: deque[PastRecord] = deque(maxlen=KEPT)
        self.seen = 0
        self._last: RecordSummary | None = None

    def restart(self) -> None:
        """Forget all records."""
        self.records.clear()
        self.seen = 0
        self._last = None

    def add(self, now: RecordSummary) -> PastRecord:
        """Append a record, in which every value is finite or NaN."""
        last = self._last
        if last is not None and last.parts is not now.parts and last.parts.names != now.parts.names:
            self.restart()
        with np.errstate(divide="ignore", invalid="ignore"):
            scopes, log_norm = len(now.parts.scopes), np.log(now.norm)
            gradient = np.log(now.gradient[:scopes])
            ratios, alignment = (gradient - log_norm[:scopes]).tolist(), now.alignment[:scopes].tolist()
            explained, time = self._explained(now), self._time(now)
            past = PastRecord(now.step, log_norm, float(gradient[-1]), ratios, alignment, explained, time)
        self.records.append(past)
        self.seen += 1
        self._last = now
        return past

    def _explained(self, now: RecordSummary) -> Array:
        """Each recorded update stands for those since the last record."""
        before = self._last
        if before is None:
            return np.zeros(len(now.norm))
        found: Array = self.records[-1].explained + now.step_growth * (now.step - before.step)
        return found

    def _time(self, now: RecordSummary) -> Array:
        before = self._last
        if before is None:
            return np.zeros(len(now.norm))
        rate = 0.5 * (before.lr + now.lr)
        unknown = np.isnan(rate)
        if unknown.any():
            rate = np.where(unknown, 1.0, rate)
        return self.records[-1].time + rate * (now.step - before.step)
