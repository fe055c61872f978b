"""Alarms about attention: logits that grow without bound, entropy that collapses."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from normscope.live.alarms.alarms import CRITICAL, WARNING, Sign
from normscope.live.alarms.loss_history import LossHistory
from normscope.rows import AttentionRow

WINDOW = 16  # steps with attention that are looked back on
LOGIT = 100.0  # a largest logit that is too large in any model
LOGIT_CRITICAL = 1000.0
LOGIT_GROWTH, LOGIT_GROWN = 4.0, 30.0  # growth within the window, and how large it must have become
ENTROPY = 0.1  # relative entropy under which a layer counts as collapsed
ENTROPY_FALL = 5.0  # if it was this many times as large within the window

Layers = Mapping[str, tuple[float, float]]
"""Of each module: its largest logit, and the mean relative entropy of its heads (NaN if not known)."""


def by_module(rows: Sequence[AttentionRow]) -> dict[str, tuple[float, float]]:
    """The largest logit and the mean relative entropy of each attention module."""
    logits: dict[str, float] = {}
    entropies: dict[str, list[float]] = {}
    for row in rows:
        logits[row.module] = max(row.logit, logits.get(row.module, row.logit))
        if row.relative_entropy is not None:
            entropies.setdefault(row.module, []).append(row.relative_entropy)
    mean = {module: sum(values) / len(values) for module, values in entropies.items()}
    return {module: (logit, mean.get(module, float("nan"))) for module, logit in logits.items()}


@dataclass
class AttentionLogits:
    """The largest attention logit of a layer is huge, or grows fast."""

    kind = "attention-logits"
    _past: deque[Layers] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def restart(self) -> None:
        """Forget the earlier steps."""
        self._past.clear()

    def check(self, step: int, layers: Layers, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each module whose logits are too large."""
        self._past.append(layers)
        for module, (logit, _) in layers.items():
            lowest = min(then[module][0] for then in self._past if module in then)
            grown = logit / max(lowest, LOGIT_GROWN / LOGIT_GROWTH)
            level = max(logit / LOGIT, grown / LOGIT_GROWTH if logit > 0.5 * LOGIT_GROWN else 0.0)
            if level >= 0.5:
                text = f"the largest attention logit of {module} is {logit:.4g}"
                if grown >= LOGIT_GROWTH:
                    text += f", up from {lowest:.4g} within {len(self._past)} measurements"
                severity = CRITICAL if logit > LOGIT_CRITICAL else WARNING
                yield Sign(self.kind, module, text, {"logit": logit, "lowest": lowest}, severity, level)


@dataclass
class AttentionEntropy:
    """All heads of a layer come to attend to one position each.

    No alarm while the loss improves, unless the logits are larger than any model needs.
    """

    kind = "attention-entropy"
    _past: deque[tuple[int, Layers]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def restart(self) -> None:
        """Forget the earlier steps."""
        self._past.clear()

    def check(self, step: int, layers: Layers, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each module whose entropy has collapsed."""
        self._past.append((step, layers))
        for module, (logit, entropy) in layers.items():
            known = [(at, then[module][1]) for at, then in self._past if module in then]
            since, highest = max(known, key=lambda pair: pair[1])
            if not (entropy < ENTROPY and highest > ENTROPY_FALL * entropy):
                continue
            if logit <= LOGIT and loss.improved_since(since):  # heads have learned where to look
                continue
            text = (
                f"the attention entropy of {module} collapsed from {highest:.3g} to {entropy:.3g} of its "
                f"maximum since step {since}"
            )
            yield Sign(self.kind, module, text, {"entropy": entropy, "before": highest})
