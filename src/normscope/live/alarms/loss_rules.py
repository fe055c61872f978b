"""Alarms about the loss: not finite, one that jumps, one that climbs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from normscope.live.alarms.alarms import CRITICAL, Sign
from normscope.live.alarms.loss_history import LossHistory, median

WINDOW = 32
FEWEST = 8  # losses that must be known before
SPIKE_RANGES = 2.0  # a jump over the largest of the last losses, in ranges of them
SPIKE_SCALE = 0.5  # and in losses at the beginning of the training
CLIMB_RECORDS = 8
CLIMB_RANGES = 1.0
CLIMB_SCALE = 0.25
FAST_RECORDS = 24  # within which a smaller climb counts, if every late loss is over every early one
FAST_RANGES, FAST_SCALE = 2.0, 0.12


class LossNotFinite:
    """The loss is NaN or infinite."""

    kind = "loss-nonfinite"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, step: int, loss: float, past: LossHistory) -> Iterator[Sign]:
        """A sign if the loss is not finite."""
        if not math.isfinite(loss):
            text = f"the loss became {'NaN' if math.isnan(loss) else 'infinite'}"
            if past.values:
                text += f"; it was {past.values[-1]:.4g} at step {past.steps[-1]}"
            yield Sign(self.kind, "loss", text, {}, CRITICAL)


class LossSpike:
    """One loss is far over the range of the last ones."""

    kind = "loss-spike"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, step: int, loss: float, past: LossHistory) -> Iterator[Sign]:
        """A sign if the loss jumps."""
        known = past.recent(WINDOW)
        if len(known) < FEWEST or not math.isfinite(loss):
            return
        largest, middle = max(known), median(known)
        limit = max(SPIKE_RANGES * (largest - min(known)), SPIKE_SCALE * past.scale, 0.5 * abs(middle))
        level = (loss - largest) / limit if limit else 0.0
        if level >= 1:
            between = f"between {min(known):.4g} and {largest:.4g}"
            text = f"the loss jumped to {loss:.4g}; the last {len(known)} were {between}"
            yield Sign(self.kind, "loss", text, {"loss": loss, "before": largest}, level=level)


class FastClimb:
    """The loss climbs within a few records, steadily compared with its noise."""

    kind = "loss-climb"

    def restart(self) -> None:
        """There is nothing to forget."""

    def check(self, step: int, loss: float, past: LossHistory) -> Iterator[Sign]:
        """A sign if all of the last losses are far over all of those before."""
        known = [*past.recent(FAST_RECORDS - 1), loss]
        if len(known) < FAST_RECORDS or not math.isfinite(loss) or past.may_rise:
            return
        early, late = known[:CLIMB_RECORDS], known[-CLIMB_RECORDS:]
        if min(late) <= max(early):  # most losses end here
            return
        before, after = median(early), median(late)
        limit = max(FAST_RANGES * (max(early) - min(early)), FAST_SCALE * past.scale)
        if limit > 0 and after - before >= limit:
            text = f"the loss climbs: from {before:.4g} to {after:.4g} within {FAST_RECORDS} losses"
            yield Sign(self.kind, "loss", text, {"loss": after, "best": before}, CRITICAL)


@dataclass
class LossClimb:
    """The loss has climbed far over the best that was reached, and stays there."""

    kind = "loss-climb"
    _best: float = math.inf
    _best_range: float = 0.0
    _best_step: int = 0

    def restart(self) -> None:
        """Forget the best loss."""
        self._best = math.inf

    def check(self, step: int, loss: float, past: LossHistory) -> Iterator[Sign]:
        """A sign if much of what was gained is lost, or the loss has doubled."""
        if not math.isfinite(loss):
            return
        known = [*past.recent(CLIMB_RECORDS - 1), loss]
        if len(known) < CLIMB_RECORDS:
            return
        level = median(known)
        if level < self._best:
            self._best, self._best_step = level, step
            self._best_range = max(known) - min(known)
        limit = max(CLIMB_RANGES * self._best_range, CLIMB_SCALE * past.scale, self._gained(past))
        climb = level - self._best
        if limit > 0 and climb >= 0.5 * limit:
            text = (
                f"the loss climbs: the median of the last {len(known)} is {level:.4g}, "
                f"it was {self._best:.4g} at step {self._best_step}"
            )
            evidence = {"loss": level, "best": self._best}
            yield Sign(self.kind, "loss", text, evidence, CRITICAL, climb / limit)

    def _gained(self, past: LossHistory) -> float:
        """The rise that is too much: a part of what was gained, or four times all of it if it may rise."""
        if past.may_rise and past.first:
            return 4 * max(max(past.first) - self._best, abs(self._best))
        if past.scale > self._best:
            return min(0.3 * (past.scale - self._best), abs(self._best))
        return abs(self._best)
