"""Alarms about gradients: drifting away, one that jumps, layers that no longer get any."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from normscope.live.alarms.alarms import CRITICAL, Sign
from normscope.live.alarms.loss_history import LossHistory, median
from normscope.live.alarms.record_summary import Array, RecordHistory, RecordSummary

RECENT = 8
DRIFT_UP, DRIFT_DOWN = 10.0, 0.01  # change of gradient norm / parameter norm
SPIKE = math.log(10.0)  # a jump over the largest of the last gradients, at least
SPIKE_RANGES = 2.0  # and over this many ranges of their logarithms
SPIKE_RECORDS = 8  # gradients that must be known before
DEAD_RECORDS = 8  # records in a row without gradient
DEAD_SHARE = math.log(1e-3)  # change of a group's gradient relative to the other groups'


class GradientDrift:
    """The gradient norm rises or falls far relative to the parameter norm."""

    kind = "drift"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each scope whose gradient has left its range while the loss does not improve."""
        records, number = past.records, 3 * RECENT
        if len(records) < number:
            return
        oldest = len(records) - number
        kept = list(records)
        rows = kept[oldest : oldest + RECENT] + kept[-RECENT:]
        for i, scope in enumerate(now.parts.scopes):
            own = [row.ratios[i] for row in rows]
            if not max(own) - min(own) > 0.5 * math.log(DRIFT_UP) or not all(map(math.isfinite, own)):
                continue  # most records end here
            before, after = median(own[:RECENT]), median(own[RECENT:])
            limit = math.log(DRIFT_UP) if after > before else math.log(DRIFT_DOWN)
            level = (after - before) / limit
            if level < 0.5 or loss.improved_since(rows[0].step):
                continue
            old, new = math.exp(before), math.exp(after)
            text = (
                f"the gradient norm relative to the parameter norm of {scope} "
                f"{'rose' if new > old else 'fell'} from {old:.3g} to {new:.3g} within {number} records"
            )
            yield Sign(self.kind, scope, text, {"before": old, "after": new}, level=level)


@dataclass
class GradientSpike:
    """The gradient norm jumps far over the range of the last records."""

    kind = "gradient-spike"
    _first: list[float] = field(default_factory=list)

    def restart(self) -> None:
        """Forget how large gradients were at the beginning."""
        self._first.clear()

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign if the gradient of all parameters jumps."""
        newest = past.records[-1].gradient
        if not math.isfinite(newest):
            return
        if len(self._first) < SPIKE_RECORDS:
            self._first.append(newest)
        if len(past.records) > 1 and newest - past.records[-2].gradient < SPIKE:  # most records end here
            return
        whole, before = len(now.parts.scopes) - 1, [row.gradient for row in past.records][:-1]
        known = [value for value in before if math.isfinite(value)]
        if len(known) < SPIKE_RECORDS:
            return
        largest = max(known)
        excess = newest - max(largest, median(self._first) - math.log(2.0))
        level = excess / max(SPIKE, SPIKE_RANGES * (largest - min(known)))
        if level >= 1:
            text = (
                f"the gradient norm of {now.parts.scopes[whole]} jumped to {math.exp(newest):.3g}; "
                f"the largest of the {len(known)} records before was {math.exp(largest):.3g}"
            )
            evidence = {"gradient": math.exp(newest), "before": math.exp(largest)}
            yield Sign(self.kind, now.parts.scopes[whole], text, evidence, level=level)


@dataclass
class DeadGroup:
    """A group that had gradients gets none, or next to none, while other groups still do."""

    kind = "dead"
    _names: tuple[str, ...] = ()
    _usual: Array = field(default_factory=lambda: np.empty(0))  # share of each group, where it had gradients
    _alive: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _without: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _longest: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _since: list[int] = field(default_factory=list)
    _all_alive: bool = False

    def restart(self) -> None:
        """Forget which groups had gradients."""
        self._names = ()

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each group that has been without gradient for longer than ever before."""
        groups = now.parts.groups
        if self._names != groups:
            self._begin(groups)
        offset = len(now.parts.scopes)
        share = now.gradient_share
        if share is None:
            yield from self._all_dead(now, loss)
            return
        none, some_frozen = share < self._usual + DEAD_SHARE, now.some_frozen
        if not none.any() and self._all_alive and not some_frozen:  # most records end here
            self._alive += 1
            self._usual += 0.1 * (share - self._usual)
            return
        frozen, gradient = now.frozen[offset:], np.nan_to_num(now.gradient[offset:])
        none &= self._alive >= DEAD_RECORDS
        self._note(now.step, share, none, frozen)
        self._all_alive = not self._without.any() and bool(np.isfinite(self._usual).all())
        long = np.maximum(DEAD_RECORDS, 2 * self._longest + 1)
        for i in np.flatnonzero(2 * self._without >= long).tolist():
            level = float(self._without[i] / long[i])
            yield self._sign(groups[i], self._since[i], float(gradient[i]), level)

    def _begin(self, groups: tuple[str, ...]) -> None:
        self._names, size = groups, len(groups)
        self._usual = np.full(size, -np.inf)
        self._alive, self._without, self._longest = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self._since = [0] * size
        self._all_alive = False

    def _note(self, step: int, share: Array, none: NDArray[np.bool_], frozen: NDArray[np.bool_]) -> None:
        none &= ~frozen
        alive = ~none & (share > -np.inf)
        self._longest = np.where(alive, np.maximum(self._longest, self._without), self._longest)
        self._alive = np.where(frozen, 0, self._alive + alive)
        for i in np.flatnonzero(none & (self._without == 0)).tolist():
            self._since[i] = step
        self._without = np.where(none, self._without + 1, 0)
        first = self._usual == -np.inf
        usual = np.where(
            first, share, 0.9 * np.where(first, 0.0, self._usual) + 0.1 * np.where(alive, share, 0.0)
        )
        self._usual = np.where(alive, usual, self._usual)

    def _sign(self, name: str, since: int, gradient: float, level: float) -> Sign:
        what = f"next to no gradient ({gradient:.3g})" if gradient else "no gradient"
        text = f"{name} gets {what} since step {since}, while other parameters do"
        return Sign(self.kind, name, text, {"since": since, "gradient": gradient}, CRITICAL, level)

    def _all_dead(self, now: RecordSummary, loss: LossHistory) -> Iterator[Sign]:
        """All gradients are zero or missing: a training that has ended well has a loss near zero."""
        whole = len(now.parts.scopes) - 1
        known = now.gradient[whole] == 0 and self._alive.any() and bool(loss.values)
        if known and loss.values[-1] > 0.1 * loss.scale:
            text = f"all gradients are exactly zero, at a loss of {loss.values[-1]:.4g}"
            yield Sign(self.kind, now.parts.scopes[whole], text, {"loss": loss.values[-1]}, CRITICAL)
