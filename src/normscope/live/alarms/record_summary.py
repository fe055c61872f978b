"""The numbers of one record that the alarms depend on, and those of the records before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

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
    optimizers: int = 1
    """How many optimizers train the model; with several, one part may be trained against another."""

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

    finite: bool | None
    """None if no output was seen."""
    module: str = ""
    """The first module in the order of the pass; empty if it is not known."""
    after: str = ""
    """The last module before it whose output was finite."""
    input_finite: bool | None = None
    parameters: tuple[str, ...] = ()
    """Its own parameters that have such values."""
    why: str = ""
    """Why the module is not known."""
    seen: tuple[str, ...] = ()
    """The modules whose outputs were seen, if that of the whole model was not."""


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

    # What the rules read at every record, which is much faster made for many records at once.

    @cached_property
    def log_norm(self) -> Array:
        """The logarithms of the norms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Array = np.log(self.norm)
        return found

    @cached_property
    def by_scope(self) -> tuple[float, list[float], list[float]]:
        """The log gradient norm of all; by scope, that relative to the norm, and the alignment."""
        scopes = len(self.parts.scopes)
        with np.errstate(divide="ignore", invalid="ignore"):
            gradient = np.log(self.gradient[:scopes])
        ratios = (gradient - self.log_norm[:scopes]).tolist()
        return float(gradient[-1]), ratios, self.alignment[:scopes].tolist()

    @cached_property
    def gradient_share(self) -> Array | None:
        """By group, the logarithm of the gradient relative to the largest; None if there is no gradient."""
        gradient = np.nan_to_num(self.gradient[len(self.parts.scopes) :])
        if not gradient.any():
            return None
        with np.errstate(divide="ignore"):
            found: Array = np.log(gradient / gradient.max())
        return found

    @cached_property
    def some_frozen(self) -> bool:
        """Whether a group has no parameter that is to get a gradient."""
        return bool(self.frozen[len(self.parts.scopes) :].any())


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
    summary: RecordSummary


class RecordHistory:
    """The last records, oldest first; begins anew when the parts change."""

    def __init__(self) -> None:
        self.records: deque[PastRecord] = deque(maxlen=KEPT)
        self.seen = 0

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of the records, in words."""
        return self.records[-1].summary.parts.scopes if self.records else ()

    def restart(self) -> None:
        """Forget all records."""
        self.records.clear()
        self.seen = 0

    def add(self, now: RecordSummary) -> PastRecord:
        """Append a record, in which every value is finite or NaN."""
        last = self.records[-1].summary if self.records else None
        if last is not None and last.parts is not now.parts and last.parts.names != now.parts.names:
            self.restart()
        past = PastRecord(now.step, now.log_norm, *now.by_scope, now)
        self.records.append(past)
        self.seen += 1
        return past

    def explained(self, first: int, last: int) -> Array:
        """Log growth of the norm between two records by the updates, as far as they were recorded.

        Each recorded update stands for those since the record before.
        """
        return self._total(first, last, lambda before, now: now.step_growth)

    def time(self, first: int, last: int) -> Array:
        """The sum of the learning rates between two records, by part; steps if they are not known."""
        return self._total(first, last, _rate)

    def _total(self, first: int, last: int, of: Callable[[RecordSummary, RecordSummary], Array]) -> Array:
        """The sum over the records after `first` up to `last`, each times the steps since the one before."""
        rows = [record.summary for record in list(self.records)[first : last + 1 or None]]
        found = np.zeros(len(rows[0].norm))
        for before, now in pairwise(rows):
            found = found + of(before, now) * (now.step - before.step)
        return found


def _rate(before: RecordSummary, now: RecordSummary) -> Array:
    rate = 0.5 * (before.lr + now.lr)
    return np.where(np.isnan(rate), 1.0, rate)
