"""Early warnings from a live run, each raised once and with its evidence.

    nonfinite    NaN or infinity in a parameter or a gradient
    law          the norm departs from the power law that its last records follow
    layer        one layer grows much faster than the others
    drift        the gradient norm rises or falls far relative to the parameter norm
    alignment    updates point more and more along the parameters: growth becomes exponential

The thresholds are chosen so that ordinary training raises none; an alarm is a
reason to look, not a verdict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from normscope.anatomy import of_scope
from normscope.words import some

WINDOW = 32  # records that the power law is fitted to
RECENT = 8  # records that count as "now"
LAW_MARGIN = 0.01  # deviations from the law below this are ignored, relative to the norm
LAW_DEVIATIONS = 8.0  # and below this many standard errors of the prediction
LAW_RECORDS = 3  # records in a row that must be off the law
LAYER_GROWTH, LAYER_FACTOR = 0.1, 5.0  # log growth of a layer, and its ratio to the other layers'
DRIFT_UP, DRIFT_DOWN = 10.0, 0.01  # change of gradient norm / parameter norm
ALIGNMENT_RISE, ALIGNMENT_DEVIATIONS = 0.1, 4.0


@dataclass(frozen=True)
class Alarm:
    """One warning: what was seen, where, and the numbers behind it.

    >>> ns.Alarm(step=120, kind="nonfinite", where="values", message="NaN in h.0.mlp.weight").kind
    'nonfinite'
    """

    step: int
    kind: str
    where: str
    message: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordSummary:
    """The numbers of one record that the alarms depend on; NaN where nothing was measured."""

    step: int
    norm: float
    gradient: float
    alignment: float
    layers: Mapping[str, float]
    """The norm of each layer."""
    nonfinite: Sequence[tuple[str, int]]
    """Tensors, or `the gradient of …`, that have NaN or infinite values, and how many."""


class AlarmDetector:
    """Reads records in order and returns the alarms that are raised for the first time."""

    def __init__(self, scope: str = "") -> None:
        """`scope` is what the records' norms are about; the messages say it."""
        self._whose = of_scope(scope)
        self._raised: set[tuple[str, str]] = set()
        self._on_law: deque[RecordSummary] = deque(maxlen=WINDOW)
        self._off_law = 0
        self._past: deque[RecordSummary] = deque(maxlen=3 * RECENT)

    def check(self, record: RecordSummary) -> list[Alarm]:
        """The new alarms of this record."""
        self._past.append(record)
        rules = (self._nonfinite, self._law, self._layer, self._drift, self._alignment)
        found = [alarm for rule in rules for alarm in rule(record)]
        new = [alarm for alarm in found if (alarm.kind, alarm.where) not in self._raised]
        self._raised.update((alarm.kind, alarm.where) for alarm in new)
        return new

    def _nonfinite(self, now: RecordSummary) -> Iterator[Alarm]:
        if now.nonfinite and ("nonfinite", "values") not in self._raised:
            text = "NaN or infinite values in " + some([f"{name} ({count})" for name, count in now.nonfinite])
            total = float(sum(count for _, count in now.nonfinite))
            evidence = {"values": total, "tensors": len(now.nonfinite)}
            yield Alarm(now.step, "nonfinite", "values", text, evidence)

    def _law(self, now: RecordSummary) -> Iterator[Alarm]:
        if now.step < 1 or not now.norm > 0:
            return
        expected, margin = self._expected(now.step)
        if abs(np.log(now.norm) - expected) <= margin:
            self._off_law = 0
            self._on_law.append(now)
            return
        self._off_law += 1
        if self._off_law >= LAW_RECORDS:
            law = float(np.exp(expected))
            text = (
                f"the norm{self._whose} departs from its power law: it is {now.norm:.6g}, "
                f"but the last {len(self._on_law)} records predict {law:.6g}"
            )
            yield Alarm(now.step, "law", "total", text, {"norm": now.norm, "expected": law, "margin": margin})
            self._on_law.clear()
            self._off_law = 0

    def _expected(self, step: int) -> tuple[float, float]:
        """The log norm that a straight line in log t predicts, and the deviation from it that is ordinary."""
        if len(self._on_law) < WINDOW // 2:
            return 0.0, np.inf
        t = np.log([record.step for record in self._on_law])
        y = np.log([record.norm for record in self._on_law])
        level, middle = y.mean(), t.mean()
        t, y, away = t - middle, y - level, np.log(step) - middle
        slope = t.dot(y) / t.dot(t)
        spread = np.sqrt(np.sum((y - slope * t) ** 2) / (len(t) - 2))
        error = spread * np.sqrt(1 + 1 / len(t) + away**2 / t.dot(t))
        return float(level + slope * away), max(LAW_MARGIN, LAW_DEVIATIONS * float(error))

    def _layer(self, now: RecordSummary) -> Iterator[Alarm]:
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
                    f"layer {name}{self._whose} grew by {np.expm1(own):.1%} since step {before.step} "
                    f"(median of the other layers: {np.expm1(others):.1%})"
                )
                yield Alarm(now.step, "layer", name, text, {"growth": own, "median": others})

    def _drift(self, now: RecordSummary) -> Iterator[Alarm]:
        if len(self._past) < 3 * RECENT:
            return
        norms = np.array([record.norm for record in self._past])
        gradients = np.array([record.gradient for record in self._past])
        if not (norms > 0).all() or not np.isfinite(gradients).all():
            return
        ratios = gradients / norms
        before, after = float(np.median(ratios[:RECENT])), float(np.median(ratios[-RECENT:]))
        if before > 0 and not DRIFT_DOWN < after / before < DRIFT_UP:
            text = (
                f"the gradient norm relative to the parameter norm{self._whose} "
                f"{'rose' if after > before else 'fell'} from {before:.3g} to {after:.3g} "
                f"within {len(self._past)} records"
            )
            yield Alarm(now.step, "drift", "total", text, {"before": before, "after": after})

    def _alignment(self, now: RecordSummary) -> Iterator[Alarm]:
        values = np.array([record.alignment for record in self._past])
        if len(values) < 2 * RECENT or not np.isfinite(values[-2 * RECENT :]).all():
            return
        before, after = values[-2 * RECENT : -RECENT], values[-RECENT:]
        rise = float(after.mean() - before.mean())
        noise = float(np.sqrt((before.var(ddof=1) + after.var(ddof=1)) / RECENT))
        if rise > max(ALIGNMENT_RISE, ALIGNMENT_DEVIATIONS * noise) and after.mean() > ALIGNMENT_RISE:
            evidence = {"before": float(before.mean()), "after": float(after.mean())}
            text = (
                f"the alignment of updates with the parameters{self._whose} rose from {before.mean():.3f} to "
                f"{after.mean():.3f}: the norm may start to grow exponentially"
            )
            yield Alarm(now.step, "alignment", "total", text, evidence)
