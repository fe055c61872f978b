"""The saturated network itself, which runs like any other model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from normscope.errors import UsageError
from normscope.network.running.scaling import ModuleT, scaled
from normscope.network.watching.attention_call import AttentionCall, Sdpa
from normscope.network.watching.tap import Proceed, intercept
from normscope.option_checks import check_number

TIES = 2.0**-16
"""Scores this close to the maximum, relative to its magnitude, tie with it: about 100 float32 roundings."""


@contextmanager
def saturated(
    model: ModuleT,
    *,
    attention: Literal["scaled", "exact"] = "scaled",
    scale: float = 2.0**10,
    ties: float | None = None,
) -> Iterator[ModuleT]:
    """Inside, `model` is its saturated network sf(x; θ) = lim f(x; cθ), taken at c = `scale`.

    With `attention="scaled"` softmax saturates because its scores are scaled. With
    "exact" it is replaced by its limit: equal weight on every position whose score
    is within `ties` (2^-16 by default) times its magnitude of the maximum. This tolerance restores
    ties that are exact on paper and broken by rounding. `scale=1` with "exact" leaves the
    parameters unchanged and saturates attention only.

    >>> import torch
    >>> import normscope as ns
    >>> attention = torch.nn.MultiheadAttention(8, num_heads=2, batch_first=True)
    >>> x = torch.randn(1, 6, 8)
    >>> with ns.saturated(attention, attention="exact"):
    ...     _, weights = attention(x, x, x, average_attn_weights=False)
    >>> weights.unique().tolist()
    [0.0, 1.0]
    """
    if attention not in ("scaled", "exact"):
        raise UsageError(f"attention must be 'scaled' or 'exact'; got {attention!r}")
    if attention == "scaled" and ties is not None:
        raise UsageError("ties has no effect with attention='scaled'; leave it out, or use attention='exact'")
    tolerance = TIES if ties is None else check_number("ties", ties, 0)
    with scaled(model, scale):
        if attention == "scaled":
            yield model
            return
        with intercept(model, _SaturatedAttention(tolerance)):
            yield model


class _SaturatedAttention:
    """Computes an attention call with the limit of its softmax."""

    def __init__(self, ties: float) -> None:
        self._ties = ties

    def __call__(self, call: AttentionCall, proceed: Proceed, arguments: Sdpa | None) -> Tensor:
        if arguments is not None:
            return self._attend(call, arguments)
        result = proceed()
        weights = torch.cat([saturated_weights(scores, self._ties) for _, _, scores in call.blocks()], dim=2)
        return shaped_like(call, weights, result)

    def _attend(self, call: AttentionCall, arguments: Sdpa) -> Tensor:
        values = arguments.values()
        parts = [
            saturated_weights(scores, self._ties).to(values.dtype) @ values for _, _, scores in call.blocks()
        ]
        shape = (*arguments.query.shape[:-1], values.shape[-1])
        return torch.cat(parts, dim=2).reshape(shape).to(arguments.query.dtype)


def saturated_weights(scores: Tensor, ties: float = TIES) -> Tensor:
    """lim_{c→∞} softmax(c · scores) on the last axis: uniform over the maxima, zero if all are hidden."""
    hidden = scores <= torch.finfo(scores.dtype).min / 2
    highest = scores.amax(-1, keepdim=True)
    tied = (scores >= highest - ties * highest.abs()) & ~hidden
    return tied / tied.sum(-1, keepdim=True).clamp_min(1).to(scores.dtype)


def shaped_like(call: AttentionCall, weights: Tensor, result: Tensor) -> Tensor:
    """Weights [batch, heads, queries, keys] in the layout and dtype of the model's own softmax."""
    return call.restore(weights).reshape(result.shape).to(result.dtype)
