"""The output of each head, weights @ values, as the model computes it: seen, and replaced.

`scaled_dot_product_attention` returns it. A model that calls softmax itself multiplies the weights
afterwards; that product is recognised by its first factor, which must be the very tensor that
softmax returned, or the same after a change of dtype or a dropout. Where no such product
is seen (an einsum, a kernel), outputs are not available, and that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normscope.network.watching.attention_call import AttentionCall, Sdpa
from normscope.network.watching.tap import Proceed, intercept

WeightsHook: TypeAlias = Callable[[AttentionCall, Tensor], Tensor]
"""Receives a call and the weights of its softmax, in the model's layout; returns the weights to use."""
OutputsHook: TypeAlias = Callable[[AttentionCall, Tensor, Sdpa | None], Tensor]
"""Receives a call and its output [batch, heads, queries, width]; returns the output to use."""

_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
_PASSING = (F.dropout, torch.dropout, Tensor.to, Tensor.type_as, Tensor.float, Tensor.contiguous)


@contextmanager
def attention_outputs(model: nn.Module, weights: WeightsHook, outputs: OutputsHook) -> Iterator[None]:
    """Let `weights` change what softmax returns (not seen with SDPA), and `outputs` what heads return."""
    products = _Products(outputs)

    def handle(call: AttentionCall, proceed: Proceed, arguments: Sdpa | None) -> Tensor:
        result = proceed()
        if arguments is not None:
            return _through(outputs, call, result, arguments)
        result = weights(call, result)
        products.expect(call, result)
        return result

    with ExitStack() as stack:
        stack.enter_context(products)  # below the tap, which opens torch's multi-head attention
        stack.enter_context(intercept(model, handle))
        yield


def _through(hook: OutputsHook, call: AttentionCall, result: Tensor, arguments: Sdpa | None) -> Tensor:
    heads = result.reshape(call.batch, call.heads, call.queries, -1)
    return hook(call, heads, arguments).reshape(result.shape)


class _Products(TorchFunctionMode):
    """Recognises weights @ values by the tensor of weights, and gives the product to the hook."""

    def __init__(self, hook: OutputsHook) -> None:
        super().__init__()
        self._hook = hook
        self._call: AttentionCall | None = None
        self._weights: Tensor | None = None

    def expect(self, call: AttentionCall, weights: Tensor) -> None:
        """Wait for the product of these weights, if their layout is […, queries, keys]."""
        folded = weights.numel() == call.batch * call.heads * call.queries * call.keys
        normal = folded and tuple(weights.shape[-2:]) == (call.queries, call.keys) and _over_keys(weights)
        self._call, self._weights = (call, weights) if normal else (None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._call is None or not args or not self._is_expected(args[0]):
            return result
        if func in _PASSING and isinstance(result, Tensor) and result.shape == args[0].shape:
            self._weights = result
        elif func in _PRODUCTS and tuple(result.shape[:-1]) == tuple(args[0].shape[:-1]):
            call, self._call, self._weights = self._call, None, None
            return _through(self._hook, call, result, None)
        return result

    def _is_expected(self, tensor: Any) -> bool:
        kept = self._weights
        if tensor is kept or kept is None or not isinstance(tensor, Tensor):
            return tensor is kept
        same = tensor.shape == kept.shape and tensor.dtype == kept.dtype
        return same and tensor.stride() == kept.stride() and tensor.data_ptr() == kept.data_ptr()


def _over_keys(weights: Tensor) -> bool:
    """Whether the last axis is the one that softmax normalised: rows sum to 1, or to 0 if replaced."""
    total = weights.sum(-1, dtype=torch.float32)
    return bool((((total - 1).abs() < 0.01) | (total == 0) | total.isnan()).all())
