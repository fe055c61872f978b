"""Softmaxes that a model writes out: exp of a log-softmax, and exp divided by its own sum."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_DIVISIONS = {"div", "div_", "divide", "true_divide", "__truediv__", "__itruediv__"}
COMPUTING = frozenset({"exp", "exp_"} | _DIVISIONS)
"""Functions that may compute the weights of a softmax that is written out."""
_DIFFERENCES = {"sub", "subtract", "__sub__", "sub_", "__isub__"}
_MASKING = {"mul", "mul_", "__mul__", "__imul__", "masked_fill", "masked_fill_", "where", "to", "float"}
_RESHAPING = {
    "unsqueeze",
    "__getitem__",
    "view",
    "reshape",
    "add",
    "__add__",
    "add_",
    "clamp",
    "clamp_min",
    "clone",
}


@dataclass(frozen=True)
class _Origin:
    """What a tensor is: `log` weights, `exp` of scores, or the `sum` of such a tensor over `dim`."""

    kind: str
    scores: Tensor | None = None
    dim: int | None = None
    of: weakref.ref[Tensor] | None = None


class WrittenSoftmax:
    """Follows the tensors of a softmax that is written out, until its weights are computed."""

    def __init__(self) -> None:
        self._origins: dict[int, tuple[weakref.ref[Tensor], _Origin]] = {}

    def recognise(self, name: str, args: Sequence[Any]) -> tuple[Tensor, int] | None:
        """The scores and the axis, if this call computes the weights."""
        if name in ("exp", "exp_") and args:
            origin = self._origin(args[0])
            if origin is not None and origin.kind == "log" and origin.dim is not None:
                return args[0], origin.dim
        if name in _DIVISIONS and len(args) > 1:
            top, bottom = self._origin(args[0]), self._origin(args[1])
            if top is None or bottom is None or top.kind != "exp" or bottom.kind != "sum":
                return None
            own_sum = bottom.of is not None and bottom.of() is args[0]
            if own_sum and bottom.dim is not None:
                return _scores(args[0], top.scores), bottom.dim
        return None

    def observe(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Note what a call made of its arguments."""
        if not isinstance(result, Tensor) or not args:
            return
        origin = self._made(name, args, kwargs, result)
        if origin is not None:
            key = id(result)
            self._origins[key] = (weakref.ref(result, lambda _: self._origins.pop(key, None)), origin)

    def _made(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Tensor) -> _Origin | None:
        first = args[0]
        if name == "log_softmax":
            return _Origin("log", dim=_axis(args, kwargs))
        if name in ("exp", "exp_"):
            return _Origin("exp", None if result is first else first)
        if name == "logsumexp" and isinstance(first, Tensor):
            return _Origin("logsumexp", dim=_axis(args, kwargs), of=weakref.ref(first))
        if name in _DIFFERENCES and len(args) > 1:
            below = self._origin(args[1])
            if (
                below is not None
                and below.kind == "logsumexp"
                and below.of is not None
                and below.of() is first
            ):
                return _Origin("log", dim=below.dim)
            return None
        return self._passed_on(name, args, kwargs, result)

    def _passed_on(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Tensor
    ) -> _Origin | None:
        for argument in args:
            origin = self._origin(argument)
            if origin is None:
                continue
            if origin.kind == "exp" and name == "sum":
                return _Origin("sum", dim=_axis(args, kwargs), of=weakref.ref(argument))
            if origin.kind == "exp" and name in _MASKING and result.shape == argument.shape:
                return origin
            if (
                origin.kind in ("sum", "logsumexp")
                and name in _RESHAPING
                and result.numel() == argument.numel()
            ):
                return origin
        return None

    def _origin(self, value: Any) -> _Origin | None:
        entry = self._origins.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else None


def _axis(args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        dim = dim[0]
    return dim if isinstance(dim, int) else None


def _scores(exponentials: Tensor, scores: Tensor | None) -> Tensor:
    """The scores behind exponentials, with −inf where a mask was multiplied into them."""
    if scores is None:
        return exponentials.log()
    hidden = (exponentials == 0) & (scores.exp() != 0)
    return scores.masked_fill(hidden, -torch.inf) if bool(hidden.any()) else scores
