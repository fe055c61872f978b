"""Early warnings from a live run, each said once and with its evidence.

    nonfinite    NaN or infinity in a parameter or a gradient
    law          the norm leaves the power law that its last records follow
    layer        one layer grows much faster than the others
    drift        the gradient's norm grows or vanishes against the parameters'
    alignment    updates point more and more along the parameters: growth turns exponential

The thresholds are chosen so that ordinary training is silent; a warning is a
reason to look, not a verdict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

WINDOW = 32
"""Records a law is fitted to."""
RECENT = 8
"""Records that count as "now"."""
LAW_MARGIN, LAW_DEVIATIONS, LAW_TIMES = 0.01, 8.0, 3
LAYER_GROWTH, LAYER_FACTOR = 0.1, 5.0
DRIFT_UP, DRIFT_DOWN = 10.0, 0.01
ALIGNMENT_RISE, ALIGNMENT_DEVIATIONS = 0.1, 4.0


@dataclass(frozen=True)
class Alarm:
    """One warning: what was seen, where and by which numbers."""

    step: int
    kind: str
    where: str
    message: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What the alarms look at in one record; NaN where it was not measured."""

    step: int
    norm: float
    gradient: float
    alignment: float
    layers: Mapping[str, float]
    nonfinite: Sequence[tuple[str, int]]
    """Names of tensors (or `gradient of …`) and how many of their values are not finite."""


class Watch:
    """Reads records in order and returns the alarms that a record raises for the first time."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()
        self._lawful: deque[Reading] = deque(maxlen=WINDOW)
        self._off = 0
        self._past: deque[Reading] = deque(maxlen=3 * RECENT)

    def look(self, reading: Reading) -> list[Alarm]:
        """The new alarms of this record."""
        self._past.append(reading)
        rules = (self._nonfinite, self._law, self._layer, self._drift, self._alignment)
        found = [alarm for rule in rules for alarm in rule(reading)]
        new = [alarm for alarm in found if (alarm.kind, alarm.where) not in self._said]
        self._said.update((alarm.kind, alarm.where) for alarm in new)
        return new

    def _nonfinite(self, now: Reading) -> Iterator[Alarm]:
        if now.nonfinite and ("nonfinite", "values") not in self._said:
            name, number = now.nonfinite[0]
            more = f" and in {len(now.nonfinite) - 1} other tensors" if len(now.nonfinite) > 1 else ""
            text = f"{number} values of {name} are not finite{more}"
            total = float(sum(count for _, count in now.nonfinite))
            yield Alarm(
                now.step, "nonfinite", "values", text, {"values": total, "tensors": len(now.nonfinite)}
            )

    def _law(self, now: Reading) -> Iterator[Alarm]:
        if now.step < 1 or not now.norm > 0:
            return
        expected, margin = self._expected(now.step)
        if abs(np.log(now.norm) - expected) <= margin:
            self._off = 0
            self._lawful.append(now)
            return
        self._off += 1
        if self._off >= LAW_TIMES:
            law = float(np.exp(expected))
            text = f"the norm is {now.norm:.6g} where the last {len(self._lawful)} records lead to {law:.6g}"
            yield Alarm(now.step, "law", "total", text, {"norm": now.norm, "expected": law, "margin": margin})
            self._lawful.clear()
            self._off = 0

    def _expected(self, step: int) -> tuple[float, float]:
        """The logarithm of the norm that a line in log t leads to, and how far from it is still ordinary."""
        if len(self._lawful) < WINDOW // 2:
            return 0.0, np.inf
        t = np.log([reading.step for reading in self._lawful])
        y = np.log([reading.norm for reading in self._lawful])
        level, middle = y.mean(), t.mean()
        t, y, away = t - middle, y - level, np.log(step) - middle
        slope = t.dot(y) / t.dot(t)
        spread = np.sqrt(np.sum((y - slope * t) ** 2) / (len(t) - 2))
        error = spread * np.sqrt(1 + 1 / len(t) + away**2 / t.dot(t))
        return float(level + slope * away), max(LAW_MARGIN, LAW_DEVIATIONS * float(error))

    def _layer(self, now: Reading) -> Iterator[Alarm]:
        if len(self._past) < 2 * RECENT:
            return
        before = self._past[-2 * RECENT]
        shared = [k for k, norm in now.layers.items() if norm > 0 and before.layers.get(k, 0) > 0]
        growth = {k: float(np.log(now.layers[k] / before.layers[k])) for k in shared}
        if len(growth) < 3:
            return
        for name, own in growth.items():
            others = float(np.median([g for k, g in growth.items() if k != name]))
            if own > LAYER_GROWTH and own > LAYER_FACTOR * max(others, LAYER_GROWTH / LAYER_FACTOR):
                text = (
                    f"layer {name} grew by {np.expm1(own):.1%} since step {before.step}, "
                    f"the median layer by {np.expm1(others):.1%}"
                )
                yield Alarm(now.step, "layer", name, text, {"growth": own, "median": others})

    def _drift(self, now: Reading) -> Iterator[Alarm]:
        if len(self._past) < 3 * RECENT:
            return
        norms = np.array([reading.norm for reading in self._past])
        gradients = np.array([reading.gradient for reading in self._past])
        if not (norms > 0).all() or not np.isfinite(gradients).all():
            return
        ratios = gradients / norms
        before, after = float(np.median(ratios[:RECENT])), float(np.median(ratios[-RECENT:]))
        if before > 0 and not DRIFT_DOWN < after / before < DRIFT_UP:
            text = f"gradient norm / parameter norm went from {before:.3g} to {after:.3g}"
            yield Alarm(now.step, "drift", "total", text, {"before": before, "after": after})

    def _alignment(self, now: Reading) -> Iterator[Alarm]:
        values = np.array([reading.alignment for reading in self._past])
        if len(values) < 2 * RECENT or not np.isfinite(values[-2 * RECENT :]).all():
            return
        before, after = values[-2 * RECENT : -RECENT], values[-RECENT:]
        rise = float(after.mean() - before.mean())
        noise = float(np.sqrt((before.var(ddof=1) + after.var(ddof=1)) / RECENT))
        if rise > max(ALIGNMENT_RISE, ALIGNMENT_DEVIATIONS * noise) and after.mean() > ALIGNMENT_RISE:
            evidence = {"before": float(before.mean()), "after": float(after.mean())}
            text = "the alignment of updates with parameters rose from {before:.3f} to {after:.3f}"
            yield Alarm(now.step, "alignment", "total", text.format(**evidence), evidence)
