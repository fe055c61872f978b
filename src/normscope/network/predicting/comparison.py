"""How predictions differ, position by position, and means over positions with errors over sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from normscope.network.predicting.predictions import Predicted, TaskName
from normscope.network.watching.hidden_states import unit_rows

_NARROW = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Scored:
    """Predictions with what several comparisons need, computed once.

    `top` is the predicted class [n] or set [n, width]; `logs` are log-probabilities [n, width], for sets
    those of no and yes, [n, width, 2]; `broken` is True at positions that are NaN or infinite. `loss` and
    `right` [n] are None if nothing says what is right.
    """

    values: Tensor
    broken: Tensor
    top: Tensor | None = None
    logs: Tensor | None = None
    loss: Tensor | None = None
    right: Tensor | None = None


def scored(found: Predicted, task: TaskName) -> Scored:
    """The predictions as log-probabilities, with their loss in nats."""
    values = found.values.float() if found.values.dtype in _NARROW else found.values
    if task == "states":
        return Scored(values, ~values.isfinite().all(-1))
    highest, top = values.max(-1)
    broken = ~highest.isfinite()
    if task == "sets":
        return _scored_sets(values, broken, found.targets)
    logs = values.log_softmax(-1)
    if found.targets is None:
        return Scored(values, broken, top, logs)
    targets = found.targets.long()
    loss = -logs.gather(-1, targets[:, None])[:, 0].double()
    return Scored(values, broken, top, logs, loss, (top == targets).double().masked_fill(broken, torch.nan))


def _scored_sets(values: Tensor, broken: Tensor, targets: Tensor | None) -> Scored:
    logs = torch.stack((functional.logsigmoid(-values), functional.logsigmoid(values)), -1)
    if targets is None:
        return Scored(values, broken, values > 0, logs)
    yes = targets == 1
    loss = -torch.where(yes, logs[..., 1], logs[..., 0]).double().mean(-1)
    right = ((values > 0) == yes).all(-1).double().masked_fill(broken, torch.nan)
    return Scored(values, broken, values > 0, logs, loss, right)


def quality(found: Scored) -> dict[str, Tensor]:
    """The loss in nats and whether the prediction is right, [n] each; empty if nothing says what is right."""
    if found.loss is None or found.right is None:
        return {}
    return {"loss": found.loss, "accuracy": found.right}


def difference(before: Scored, after: Scored) -> dict[str, Tensor]:
    """How far `after` is from `before`, [n] each.

    For predictions: `changed`, 1 where the top prediction (or the predicted set) is another, and
    `divergence`, the Kullback–Leibler divergence KL(before ‖ after) in nats. For states: `turned`,
    1 − cosine, and `moved`, the norm of the difference relative to that of the state before.
    With a loss, `loss_change` too. A position that is NaN or infinite in either is NaN.
    """
    if before.logs is None or after.logs is None or before.top is None or after.top is None:
        one, other = before.values.double(), after.values.double()
        turned = (1 - (unit_rows(one) * unit_rows(other)).sum(-1)).clamp_min(0)
        found = {"turned": turned, "moved": (other - one).norm(dim=-1) / one.norm(dim=-1)}
    else:
        changed = before.top != after.top
        changed = changed if changed.dim() == 1 else changed.any(-1)
        found = {"changed": changed.double(), "divergence": _divergence(before.logs, after.logs)}
    if before.loss is not None and after.loss is not None:
        found["loss_change"] = after.loss - before.loss
    broken = before.broken | after.broken
    return {name: numbers.masked_fill(broken, torch.nan) for name, numbers in found.items()}


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL between log-probabilities on the last axis, summed over symbols if there are several; at least 0."""
    terms = before.exp() * (before - after)
    if bool((before == -torch.inf).any()):
        terms = terms.masked_fill(before == -torch.inf, 0)
    return terms.flatten(1).sum(-1, dtype=torch.float64).clamp_min(0)


def rescaled(before: Scored, after: Predicted, task: TaskName) -> Predicted:
    """`after` with its logits multiplied by one number, so that they are as large as those of `before`.

    Softmax does not see a constant, so the size of logits is their distance from their mean.
    """
    values = after.values.to(before.values.dtype)
    peak = float(values.abs().max()) if values.numel() else 0.0
    values = values / peak if peak else values  # squares of scaled logits could overflow
    size, now = (float(_size(part, task)) for part in (before.values, values))
    return replace(after, values=values * (size / now if now else 1.0))


def _size(values: Tensor, task: TaskName) -> Tensor:
    if task == "sets":
        return values.square().mean(-1).sqrt().mean()
    return values.std(-1, unbiased=False).mean()


@dataclass(frozen=True)
class Mean:
    """A mean over positions, and its standard error over sentences."""

    value: float
    error: float


class SentenceSums:
    """Sums of one number per position, by sentence, for means with an error over sentences.

    Positions of one sentence are not independent, so the error is that of a ratio of sums over
    sentences: √(Σ (sₖ − m·nₖ)²·K/(K−1)) / N for K sentences with sums sₖ and nₖ positions.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self._counts: list[Tensor] = []

    def add(self, values: Tensor, sentences: Tensor, rows: int) -> None:
        """Add the positions of a batch of `rows` sentences; `values` is [n], or [copies, n]."""
        values, sentences = values.double().cpu(), sentences.cpu()
        empty = torch.zeros(*values.shape[:-1], rows, dtype=torch.float64)
        self._sums.append(empty.index_add(-1, sentences, values))
        self._counts.append(torch.bincount(sentences, minlength=rows).double())

    @property
    def positions(self) -> int:
        """The number of positions."""
        return int(sum(float(counts.sum()) for counts in self._counts))

    def means(self) -> list[Mean]:
        """The mean of each copy."""
        sums, counts = torch.cat(self._sums, -1), torch.cat(self._counts)
        sums, counts = sums[..., counts > 0].reshape(-1, int((counts > 0).sum())), counts[counts > 0]
        total, many = float(counts.sum()), len(counts)
        found = []
        for row in sums:
            mean = float(row.sum()) / total if total else math.nan
            spread = float((row - mean * counts).square().sum())
            error = math.sqrt(spread * many / (many - 1)) / total if many > 1 else math.nan
            found.append(Mean(mean, error))
        return found

    def mean(self) -> Mean:
        """The mean, if there is one copy."""
        return self.means()[0]


def all_right(right: Sequence[Tensor], sentences: Sequence[Tensor]) -> float:
    """The share of sentences whose positions are all right; NaN where one is NaN."""
    whole: list[Tensor] = []
    for values, rows in zip(right, sentences, strict=True):
        counts = torch.bincount(rows.cpu())
        sums = torch.zeros(len(counts), dtype=torch.float64).index_add(0, rows.cpu(), values.double().cpu())
        whole.append(torch.where(sums.isnan(), sums, (sums == counts).double())[counts > 0])
    return float(torch.cat(whole).mean())
