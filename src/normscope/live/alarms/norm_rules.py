"""Alarms about norms: off their power law, growing exponentially, one layer alone, updates along θ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from normscope.live.alarms.alarms import CRITICAL, Sign
from normscope.live.alarms.loss_history import LossHistory
from normscope.live.alarms.record_summary import Array, RecordHistory, RecordSummary
from normscope.live.alarms.running_line import RunningLine

WINDOW = 32  # records that the power law is fitted to
RECENT = 8  # records that count as "now"
LAW_MARGIN = 0.01  # deviations from the law below this are ignored, relative to the norm
LAW_DEVIATIONS = 8.0  # and below this many standard errors of the prediction
LAW_RECORDS = 3  # records in a row that must be off the law
RUNAWAY_RECORDS, RUNAWAY = 18, 0.3  # log growth within so many records
EXPLAINED = 0.5  # share of the growth that the optimizer's updates must explain for a good loss to excuse it
EARLY, EARLY_FACTOR = 48, 6.0  # records in which momentum and fresh parameters make growth look exponential
STEEP = 1.0  # and log growth per log step: a power law with a smaller exponent is ordinary
CONVEX = 0.5  # how far between a straight line (0) and an exponential (1) the norm must grow
LAYER_GROWTH, LAYER_EARLY, LAYER_FACTOR = 0.15, 0.3, 5.0  # log growth, in the first records, beside others'
LAYER_SIZE = 0.25  # of the median norm of the layers; smaller ones may grow
ALIGNMENT_RISE, ALIGNMENT_DEVIATIONS, ALIGNED = 0.2, 4.0, 0.3


@dataclass
class OffLaw:
    """The norm of a scope departs from the power law that its last records follow."""

    kind = "law"
    _on_law: dict[str, RunningLine] = field(default_factory=dict)
    _off_law: dict[str, int] = field(default_factory=dict)

    def restart(self) -> None:
        """Forget the law."""
        self._on_law.clear()
        self._off_law.clear()

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each scope that is off its law."""
        if now.step < 1:
            return
        t = math.log(now.step)
        scopes = now.parts.scopes
        for scope, y in zip(scopes, past.records[-1].log_norm[: len(scopes)].tolist(), strict=True):
            if not math.isfinite(y):
                continue
            known = self._on_law.setdefault(scope, RunningLine(WINDOW))
            expected, error = known.predict(t) if len(known) >= WINDOW // 2 else (0.0, math.inf)
            margin = max(LAW_MARGIN, LAW_DEVIATIONS * error)
            if abs(y - expected) <= margin:
                self._off_law[scope] = 0
                known.add(t, y)
                continue
            self._off_law[scope] = self._off_law.get(scope, 0) + 1
            if self._off_law[scope] >= LAW_RECORDS:
                yield _off_law(scope, math.exp(y), math.exp(expected), margin, len(known))
                known.clear()
                self._off_law[scope] = 0


def _off_law(scope: str, norm: float, law: float, margin: float, number: int) -> Sign:
    text = (
        f"the norm of {scope} departs from its power law: it is {norm:.6g}, "
        f"but the last {number} records predict {law:.6g}"
    )
    return Sign("law", scope, text, {"norm": float(norm), "expected": float(law), "margin": margin})


class Runaway:
    """A scope or a group grows faster and faster: exponentially in the sum of the learning rates.

    Ordinary growth is at most linear in that sum, because an optimizer's update has the size of the
    learning rate; exponential growth has updates in proportion to the parameters.
    """

    kind = "growth"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each part that runs away while the loss does not improve."""
        records = past.records
        if len(records) < RUNAWAY_RECORDS:
            return
        first, last = records[-RUNAWAY_RECORDS], records[-1]
        steep = STEEP * math.log(max(1, last.step) / max(1, first.step))
        limit = max(RUNAWAY * (EARLY_FACTOR if past.seen < EARLY else 1.0), steep)
        if (last.log_norm - first.log_norm).max() <= 0.5 * limit:  # most records end here
            return
        growth = np.minimum(last.log_norm, records[-2].log_norm) - first.log_norm  # one outlier is no growth
        if not (growth > 0.5 * limit).any():
            return
        convex = _convexity(past)
        excused = bool(loss.values) and not loss.worsened_since(first.step)
        explained = past.explained(-RUNAWAY_RECORDS, -1)
        for i in np.flatnonzero((growth > 0.5 * limit) & (convex > CONVEX)).tolist():
            name, own = now.parts.names[i], float(growth[i])
            if excused and not explained[i] < EXPLAINED * own:
                continue
            text = (
                f"the norm of {name} grows exponentially: by {np.expm1(own):.1%} since step {first.step}, "
                "faster and faster"
            )
            evidence = {"growth": own, "convexity": float(convex[i])}
            yield Sign(self.kind, name, text, evidence, CRITICAL, own / limit)


def _convexity(past: RecordHistory) -> Array:
    """0 where the norm grew in proportion to time, 1 where it grew exponentially."""
    half = -RUNAWAY_RECORDS // 2
    first, middle, last = (past.records[i] for i in (-RUNAWAY_RECORDS, half, -1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        start, end = np.exp(first.log_norm - middle.log_norm), np.exp(last.log_norm - middle.log_norm)
        early, late = past.time(-RUNAWAY_RECORDS, half), past.time(half, -1)
        ratio = (end - 1) / late / ((1 - start) / early)
        rate = (last.log_norm - first.log_norm) / (early + late)
        exponential = np.expm1(rate * late) / late / (-np.expm1(-rate * early) / early)
        found: Array = (ratio - 1) / (exponential - 1)
    return np.where((start < 1) & (exponential > 1), found, np.where(end > 1, np.inf, -np.inf))


class FastLayer:
    """One layer grows much faster than the others."""

    kind = "layer"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each layer that grows away from the median of the others."""
        if len(past.records) < 2 * RECENT:
            return
        before, offset = past.records[-2 * RECENT], len(now.parts.scopes)
        growth = (past.records[-1].log_norm - before.log_norm)[offset:]
        steep = STEEP * math.log(max(1, now.step) / max(1, before.step))
        limit = LAYER_EARLY if past.seen < EARLY else max(LAYER_GROWTH, steep)
        if not len(growth) or growth.max() <= 0.5 * limit:  # most records end here
            return
        if now.parts.layers.sum() < 3:
            return
        growth = np.where(now.parts.layers & np.isfinite(growth), growth, np.nan)
        fast = np.flatnonzero(growth > 0.5 * limit)
        sizes = np.exp(before.log_norm[offset:])
        typical = float(np.median(sizes[now.parts.layers])) if len(fast) else 0.0
        for i in fast.tolist():
            own = float(growth[i])
            rest = np.delete(growth, i)
            others = float(np.median(rest[~np.isnan(rest)])) if (~np.isnan(rest)).sum() > 1 else np.nan
            level = own / max(limit, LAYER_FACTOR * others)
            small = sizes[i] < LAYER_SIZE * typical
            if level >= 0.5 and not small and not loss.improved_since(before.step):
                name = now.parts.groups[i]
                text = (
                    f"{name} grew by {np.expm1(own):.1%} since step {before.step} "
                    f"(median of the other layers: {np.expm1(others):.1%})"
                )
                yield Sign(self.kind, name, text, {"growth": own, "median": others}, level=level)


class RisingAlignment:
    """Updates point more and more along the parameters: growth becomes exponential."""

    kind = "alignment"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each scope whose updates turn towards its parameters."""
        if len(past.records) < 2 * RECENT:
            return
        newest = past.records[-1].alignment
        for i, scope in enumerate(now.parts.scopes):
            if not newest[i] > 0.5 * ALIGNED:  # most records end here
                continue
            rows = [past.records[-k].alignment[i] for k in range(1, 2 * RECENT + 1)]
            after, before = rows[:RECENT], rows[RECENT:]
            (mean, spread), (old, old_spread) = _mean_and_variance(after), _mean_and_variance(before)
            rise, noise = mean - old, ((spread + old_spread) / RECENT) ** 0.5
            if rise > max(ALIGNMENT_RISE, ALIGNMENT_DEVIATIONS * noise) and mean > ALIGNED:
                if loss.improved_since(past.records[-2 * RECENT].step):
                    continue
                text = (
                    f"the alignment of updates with the parameters of {scope} rose from {old:.3f} to "
                    f"{mean:.3f}: the norm may start to grow exponentially"
                )
                yield Sign(self.kind, scope, text, {"before": old, "after": mean})


def _mean_and_variance(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1)
