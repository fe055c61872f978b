"""Alarm about a training that goes the wrong way: gradient ascent, a sign or a label mixed up.

At a small rate the loss rises no further in twenty records than healthy losses do now and then. What healthy
trainings do not do is to raise the gradient norm at the same time, or to turn their updates around before:
when the gradient changes its sign, the alignment of updates with the parameters changes its own within the
memory of the momentum, far faster than it changes in any training. Every change is measured in standard
errors, from the differences between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from normscope.live.alarms.alarms import CRITICAL, Sign
from normscope.live.alarms.loss_history import LossHistory
from normscope.live.alarms.record_summary import PastRecord, RecordHistory

WINDOW, EARLY, LATE = 24, 8, 6  # records that are looked back on; the first and the last of them are compared
SEEN = 48  # records before which nothing is judged: a training begins with many turns
TOGETHER = 4.5  # standard errors by which the loss and the gradient norm rise together
SMALLEST = 0.02  # rise of the loss that counts, as a share of the loss at the beginning
TURN, TURN_LEAST = 33.0, 0.05  # standard errors of a fall of the alignment, and its least size
TURN_LOSS, TURN_GRADIENT = 0.3, 2.5  # standard errors by which loss and gradient must rise after a turn
RATE = 0.25  # change of the logarithm of the learning rate that explains anything


class Ascent:
    """The loss and the gradient norm rise steadily together, or rise after the updates have turned around."""

    kind = "ascent"

    def check(self, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """A sign if the training climbs with its newest loss; only if the loss of every record is known."""
        if past.seen < SEEN or len(loss.values) < WINDOW or not _later(loss.recent(WINDOW)):
            return  # most records end here
        records = [row for row in past.records if row.step <= loss.steps[-1]][-WINDOW:]
        steps = [loss.steps[i] for i in range(-WINDOW, 0)]
        if [row.step for row in records] != steps or _rate_moved(records):
            return
        scope = len(past.scopes) - 1
        values = loss.recent(WINDOW)
        gradients = [row.gradient for row in records]
        turns = [row.alignment[scope] for row in records]
        rise, gradient, turn = map(standard_errors, (values, gradients, turns))
        large = _change(values) > SMALLEST * loss.scale and not loss.may_rise
        together = large and min(rise, gradient) > TOGETHER
        turned = (
            turn < -TURN and -_change(turns) > TURN_LEAST and rise > TURN_LOSS and gradient > TURN_GRADIENT
        )
        if together or turned:
            yield _sign(past.scopes[scope], values, gradients, turns, turned)


def standard_errors(values: Sequence[float]) -> float:
    """The change from the first values to the last ones, in standard errors of white noise.

    The noise is taken from differences of neighbours, so that the change itself does not count as noise.
    """
    steps = [b - a for a, b in pairwise(values)]
    mean = sum(steps) / len(steps)
    noise = math.sqrt(sum((step - mean) ** 2 for step in steps) / (2 * len(steps)))
    change = _change(values)
    return change / max(noise * math.sqrt(1 / EARLY + 1 / LATE), 1e-9 * abs(change), 1e-300)


def _change(values: Sequence[float]) -> float:
    return sum(values[-LATE:]) / LATE - sum(values[:EARLY]) / EARLY


def _later(values: Sequence[float]) -> bool:
    return _change(values) > 0


def _rate_moved(records: Sequence[PastRecord]) -> bool:
    """Whether the learning rate of any part is not what it was at the beginning of the window."""
    early, late = records[0].summary.lr, records[-1].summary.lr
    limit = math.exp(RATE)
    return bool(((late > limit * early) | (early > limit * late)).any())


def _sign(
    scope: str, loss: Sequence[float], gradient: Sequence[float], turn: Sequence[float], turned: bool
) -> Sign:
    (a, b), (c, d), (e, f) = map(_ends, (loss, gradient, turn))
    text = (
        f"training seems to go the wrong way: within {WINDOW} records the loss rose from {a:.4g} to {b:.4g} "
        f"and the gradient norm of {scope} from {math.exp(c):.3g} to {math.exp(d):.3g}"
    )
    if turned:
        text += f", after the alignment of updates with the parameters turned from {e:.3f} to {f:.3f}"
    evidence = {"loss": b, "before": a, "gradient": math.exp(d), "alignment": f}
    return Sign("ascent", "loss", text, evidence, CRITICAL)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return sum(values[:EARLY]) / EARLY, sum(values[-LATE:]) / LATE
