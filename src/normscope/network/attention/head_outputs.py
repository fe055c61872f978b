"""The output vectors of attention heads, Σ weight · value, seen from outside.

`scaled_dot_product_attention` returns them. After a softmax they are the result of the matrix
product that consumes the weights, perhaps after a dropout, a cast or a change of shape. The
weights are followed by their contents: a tensor that is computed from them and has the same
numbers in the same order is still the weights. Whatever else a model does with them (a second
product, a difference of two maps) leaves the output unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normscope.network.watching.attention_call import HIDDEN, AttentionCall, Sdpa
from normscope.network.watching.tap import Proceed, intercept

_PRODUCTS = (torch.matmul, torch.bmm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm)
_OPEN = 4  # calls that are followed at once


@dataclass
class SeenCall:
    """One attention call of a pass, with its weights, [batch, heads, queries, keys].

    `sees`, [batch, queries], is True for queries that see a position (in the plain network); `outputs` is
    [batch, heads, queries, width], or None if they were not seen.
    """

    call: AttentionCall
    weights: Tensor
    sees: Tensor
    outputs: Tensor | None = None
    products: int = 0

    def consume(self, result: Tensor | None) -> None:
        """Store what a matrix product with the weights gave; two products make the output unknown."""
        self.products += 1
        fits = result is not None and self.products == 1 and _leads(result, self.call)
        self.outputs = None
        if result is not None and fits:
            self.outputs = result.reshape(
                self.call.batch, self.call.heads, self.call.queries, result.shape[-1]
            )

    def equals(self, tensor: Tensor) -> bool:
        """Whether a tensor holds the weights in the same order, up to the rounding of the coarser dtype.

        Rows of NaN, which see nothing, are often replaced by zeros and not compared.
        """
        call = self.call
        if not tensor.is_floating_point() or not _leads(tensor, call) or tensor.shape[-1] != call.keys:
            return False
        coarse = max(torch.finfo(tensor.dtype).eps, torch.finfo(self.weights.dtype).eps, 1e-6)
        distance = (tensor.reshape(self.weights.shape).to(self.weights.dtype) - self.weights).abs()
        return bool(((distance <= 4 * coarse) | self.weights.isnan()).all())


def _leads(tensor: Tensor, call: AttentionCall) -> bool:
    """Whether a tensor is [..., queries, any], with the call's batch and heads in front, flattened or not."""
    return (
        tensor.dim() >= 2
        and tensor.shape[-2] == call.queries
        and tensor.shape[:-2].numel() == call.batch * call.heads
    )


@contextmanager
def watch_outputs(model: nn.Module, finished: Callable[[SeenCall], None]) -> Iterator[None]:
    """Show each attention call to `finished`, a few calls later, when its heads' outputs are known."""
    mode = _WeightsMode(finished)

    def handle(call: AttentionCall, proceed: Proceed, arguments: Sdpa | None) -> Tensor:
        blocks = [(scores.softmax(-1), (scores > HIDDEN)[:, 0].any(-1)) for _, _, scores in call.blocks()]
        weights = torch.cat([weights for weights, _ in blocks], 2)
        entry = SeenCall(call, weights, torch.cat([sees for _, sees in blocks], 1))
        result = proceed()
        if arguments is not None:
            entry.consume(result)
        mode.open(entry, result)
        return result

    with mode, intercept(model, handle):
        yield
    mode.finish(0)


class _WeightsMode(TorchFunctionMode):
    """Follows attention weights from the softmax to the product that consumes them."""

    def __init__(self, finished: Callable[[SeenCall], None]) -> None:
        super().__init__()
        self._finished = finished
        self._open: list[SeenCall] = []
        self._followed: dict[int, tuple[Tensor, SeenCall]] = {}  # the tensors stay alive, so ids stay theirs

    def open(self, entry: SeenCall, result: Tensor) -> None:
        """Begin to follow a call; the oldest ones are finished."""
        self._open.append(entry)
        if not entry.products:
            self._follow(result, entry)
        self.finish(_OPEN)

    def finish(self, left: int) -> None:
        """Show and release all calls but the newest `left`."""
        while len(self._open) > left:
            entry = self._open.pop(0)
            self._followed = {key: value for key, value in self._followed.items() if value[1] is not entry}
            self._finished(entry)

    def _follow(self, tensor: Any, entry: SeenCall) -> None:
        if isinstance(tensor, Tensor) and entry.equals(tensor):
            self._followed[id(tensor)] = (tensor, entry)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        operands = [*args, *kwargs.values()]
        operands += [item for operand in operands if isinstance(operand, (list, tuple)) for item in operand]
        for place, operand in enumerate(operands):
            known = self._followed.get(id(operand))
            if known is None or not isinstance(result, Tensor) or result is operand:
                continue
            entry = known[1]
            if func in _PRODUCTS:
                entry.consume(result if place == 0 and entry.equals(operand) else None)
            elif func is torch.einsum:
                entry.consume(_einsum_output(args, operand, result) if entry.equals(operand) else None)
            else:
                self._follow(result, entry)
        return result


def _einsum_output(args: Any, weights: Any, result: Tensor) -> Tensor | None:
    """The result of einsum(equation, weights, values) with its axes as [..., queries, width]."""
    if len(args) != 3 or not isinstance(args[0], str) or "->" not in args[0] or "." in args[0]:
        return None
    inputs, _, output = args[0].replace(" ", "").partition("->")
    first, second = inputs.split(",")
    own, other = (first, second) if args[1] is weights else (second, first)
    kept = own[:-1]
    if args[1] is args[2] or own[-1] not in other or own[-1] in output or not set(kept) <= set(output):
        return None
    rest = [label for label in output if label not in kept]
    order = [output.index(label) for label in (*kept, *rest)]
    return result.permute(order).flatten(len(kept)) if rest else None
