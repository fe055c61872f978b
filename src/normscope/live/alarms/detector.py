"""Reads records, losses and attention in order, and returns the alarms that begin with them.

    nonfinite          NaN or infinity in a parameter, a gradient or the model's output, and where it began
    law                the norm departs from the power law that its last records follow
    growth             a part of the model grows exponentially
    layer              one layer grows much faster than the others
    alignment          updates point more and more along the parameters
    ascent             loss and gradient rise together, or rise after the updates have turned around
    drift              the gradient norm rises or falls far relative to the parameter norm
    gradient-spike     the gradient norm jumps
    dead               a layer no longer gets gradients
    loss-nonfinite, loss-spike, loss-climb
    attention-logits, attention-entropy
    spectral-growth    one direction of a matrix grows away from the others

The thresholds are chosen so that ordinary training raises none; an alarm is a
reason to look, not a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from normscope.live.alarms.alarm_state import AlarmState
from normscope.live.alarms.alarms import Alarm, Sign
from normscope.live.alarms.ascent_rule import Ascent
from normscope.live.alarms.attention_rules import AttentionEntropy, AttentionLogits, Layers, by_module
from normscope.live.alarms.gradient_rules import DeadGroup, GradientDrift, GradientSpike
from normscope.live.alarms.loss_history import LossHistory
from normscope.live.alarms.loss_rules import FastClimb, LossClimb, LossNotFinite, LossSpike
from normscope.live.alarms.nonfinite import KIND, nonfinite_sign
from normscope.live.alarms.norm_rules import FastLayer, OffLaw, RisingAlignment, Runaway
from normscope.live.alarms.record_summary import RecordHistory, RecordSummary
from normscope.live.alarms.spectral_rule import Sizes, SpectralGrowth
from normscope.rows import AttentionRow


class RecordRule(Protocol):
    """Judges a record beside those before it, of which it is the last."""

    kind: str

    def check(self, now: RecordSummary, past: RecordHistory, loss: LossHistory) -> Iterator[Sign]:
        """What it sees."""

    def restart(self) -> None:
        """Forget the past."""


class LossRule(Protocol):
    """Judges a loss beside those before it."""

    kind: str

    def check(self, step: int, loss: float, past: LossHistory) -> Iterator[Sign]:
        """What it sees."""

    def restart(self) -> None:
        """Forget the past."""


class AttentionRule(Protocol):
    """Judges the attention of one step."""

    kind: str

    def check(self, step: int, layers: Layers, loss: LossHistory) -> Iterator[Sign]:
        """What it sees."""

    def restart(self) -> None:
        """Forget the past."""


RECORD_RULES: tuple[Callable[[], RecordRule], ...] = (
    OffLaw, Runaway, FastLayer, RisingAlignment, GradientDrift, GradientSpike, DeadGroup,
)  # fmt: skip
LOSS_RULES: tuple[Callable[[], LossRule], ...] = (LossNotFinite, LossSpike, LossClimb, FastClimb)
ATTENTION_RULES: tuple[Callable[[], AttentionRule], ...] = (AttentionLogits, AttentionEntropy)
LOSSES = ("loss", "train_loss", "train/loss")
"""Names under which a training loop logs its loss."""


class AlarmDetector:
    """Has the rules and what they remember; one per training."""

    def __init__(self) -> None:
        self._state = AlarmState()
        self._past, self._loss = RecordHistory(), LossHistory()
        self._last_finite: int | None = None
        self._record_rules = [rule() for rule in RECORD_RULES]
        self._loss_rules = [rule() for rule in LOSS_RULES]
        self._ascent = Ascent()
        self._attention_rules: dict[str, list[AttentionRule]] = {}
        self._spectral = SpectralGrowth()
        self._record_kinds = {KIND, *(rule.kind for rule in self._record_rules)}
        self._loss_kinds = {self._ascent.kind, *(rule.kind for rule in self._loss_rules)}

    def restart(self) -> None:
        """Forget the records: the training goes back to an earlier step, or the model has changed."""
        self._past.restart()
        self._loss.restart()
        for record_rule in self._record_rules:
            record_rule.restart()
        for loss_rule in self._loss_rules:
            loss_rule.restart()
        self._attention_rules.clear()
        self._spectral.restart()

    def check(self, now: RecordSummary) -> list[Alarm]:
        """The alarms that begin with this record.

        A record with values that are not finite is judged by no other rule: its sums leave them out.
        """
        sign = nonfinite_sign(now, self._last_finite)
        if sign is not None:
            return self._state.update(now.step, [sign], {KIND})
        self._last_finite = now.step
        self._past.add(now)
        self._loss.opponents = now.parts.optimizers > 1
        signs = [sign for rule in self._record_rules for sign in rule.check(now, self._past, self._loss)]
        return self._state.update(now.step, signs, self._record_kinds)

    def check_scalars(self, step: int, values: Mapping[str, float]) -> list[Alarm]:
        """The alarms that begin with the loss of this step, if it is among the values."""
        loss = next((values[name] for name in LOSSES if name in values), None)
        if loss is None:
            return []
        if loss - loss != 0 and self._state.active(KIND):  # it has been said, with its origin
            return []
        signs = [sign for rule in self._loss_rules for sign in rule.check(step, loss, self._loss)]
        if loss - loss == 0:  # finite
            self._loss.add(step, loss)
            signs += self._ascent.check(self._past, self._loss)
        return self._state.update(step, signs, self._loss_kinds)

    def check_attention(self, rows: Sequence[AttentionRow]) -> list[Alarm]:
        """The alarms that begin with the attention of one step; each source is judged by itself."""
        found: list[Alarm] = []
        for source in dict.fromkeys(row.source for row in rows):
            if source not in self._attention_rules:
                self._attention_rules[source] = [rule() for rule in ATTENTION_RULES]
            rules, own = self._attention_rules[source], [row for row in rows if row.source == source]
            layers = by_module(own)
            signs: Iterable[Sign] = (s for r in rules for s in r.check(own[0].step, layers, self._loss))
            found += self._state.update(own[0].step, list(signs), {rule.kind for rule in rules})
        return found

    def check_spectra(self, sizes: Sizes, step: int) -> list[Alarm]:
        """The alarms that begin with the spectral norms of one step."""
        signs = list(self._spectral.check(step, sizes, self._loss))
        return self._state.update(step, signs, {self._spectral.kind})
