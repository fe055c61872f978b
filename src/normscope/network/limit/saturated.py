"""The saturated network itself, to run like any other model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.attention.attention_call import AttentionCall, Sdpa
from normscope.network.attention.tap import Proceed, intercept
from normscope.network.limit.scaling import scaled

Model = TypeVar("Model", bound=nn.Module)

TIES = 2.0**-16
"""Scores within this share of the maximum's magnitude tie with it: some hundred roundings of float32."""


@contextmanager
def saturated(
    model: Model,
    attention: Literal["scaled", "exact"] = "scaled",
    scale: float = 2.0**10,
    ties: float = TIES,
) -> Iterator[Model]:
    """Inside, the model is its saturated network sf(x; θ) = lim f(x; cθ), taken at c = `scale`.

    With `attention="scaled"` softmax saturates because its scores are scaled. With
    "exact" it is replaced by its limit: equal weight on every position whose score
    ties for the maximum, up to `ties` times its magnitude. Rounding breaks ties that are
    exact on paper; the tolerance mends them. `scale=1` with
    "exact" leaves the parameters alone and saturates attention only.
    """
    if attention not in ("scaled", "exact"):
        raise UsageError(f"attention is 'scaled' or 'exact', not {attention!r}")
    with scaled(model, scale):
        if attention == "scaled":
            yield model
            return
        with intercept(model, _Limit(ties)):
            yield model


class _Limit:
    """Answers an attention call with the limit of its softmax."""

    def __init__(self, ties: float) -> None:
        self._ties = ties

    def __call__(self, call: AttentionCall, proceed: Proceed, arguments: Sdpa | None) -> Tensor:
        if arguments is not None:
            return self._attend(call, arguments)
        result = proceed()
        weights = torch.cat([saturated_weights(scores, self._ties) for _, _, scores in call.blocks()], dim=2)
        return _shaped_like(weights, result)

    def _attend(self, call: AttentionCall, arguments: Sdpa) -> Tensor:
        values = arguments.values()
        parts = [
            saturated_weights(scores, self._ties).to(values.dtype) @ values for _, _, scores in call.blocks()
        ]
        shape = (*arguments.query.shape[:-1], values.shape[-1])
        return torch.cat(parts, dim=2).reshape(shape).to(arguments.query.dtype)


def saturated_weights(scores: Tensor, ties: float = TIES) -> Tensor:
    """lim_{c→∞} softmax(c · scores) on the last axis: uniform over the maxima; zero where all are hidden."""
    hidden = scores <= torch.finfo(scores.dtype).min / 2
    highest = scores.amax(-1, keepdim=True)
    tied = (scores >= highest - ties * highest.abs()) & ~hidden
    return tied / tied.sum(-1, keepdim=True).clamp_min(1).to(scores.dtype)


def _shaped_like(weights: Tensor, result: Tensor) -> Tensor:
    """Weights [batch, heads, queries, keys] in the shape and dtype that the model's own softmax gave."""
    if weights.shape[-2:] != result.shape[-2:]:  # softmax over the last axis but one
        weights = weights.transpose(-1, -2)
    return weights.reshape(result.shape).to(result.dtype)
