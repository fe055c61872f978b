"""Multiply every parameter by a power of two, in place, and restore it bit for bit.

Multiplying a float by 2^n only changes its exponent: no digit is lost as long as
nothing overflows, so the scaled network f(x; cθ) needs no second copy of θ.
Scaling *up* is exact for subnormal numbers too, and dividing again restores
exactly the old value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import SupportsFloat, TypeVar

import torch
from torch import Tensor, nn

from normscope.errors import ModelError, ScaleOverflow, UsageError
from normscope.network.running.parameters import (
    ParameterMemory,
    absolute_extremes,
    any_rank,
    local_parameters,
    reshard,
)
from normscope.option_checks import check_kind

ModuleT = TypeVar("ModuleT", bound=nn.Module)

_WIDER = (torch.bfloat16, torch.float32, torch.float64)
_LARGEST_EXPONENT = 60  # 2^60 fits the arithmetic type of every dtype; larger factors take several steps


@contextmanager
def scaled(model: ModuleT, scale: float) -> Iterator[ModuleT]:
    """Inside, `model` is f(x; cθ): every parameter is multiplied by c = `scale`, a power of two.

    Nothing is copied. Tied parameters are scaled once; buffers are not parameters
    and do not change. Afterwards, also after an exception, the parameters are restored
    bit for bit. Calls may be nested; DDP and FSDP2 models work too.

    >>> import torch
    >>> import normscope as ns
    >>> model = torch.nn.Linear(1, 1)
    >>> before = model.weight.item()
    >>> with ns.scaled(model, 1024):
    ...     model.weight.item() == 1024 * before
    True
    >>> model.weight.item() == before
    True
    """
    check_kind("model", model, nn.Module)
    exponent = power_of_two(scale)
    reshard(model)
    parameters = local_parameters(model)
    _refuse_overflow(parameters, exponent)
    journal = _ScalingJournal([memory.values for memory in parameters])
    try:
        journal.multiply(exponent)
        yield model
    finally:
        reshard(model)
        journal.undo(exponent)


def check_scale(model: nn.Module, scale: float) -> None:
    """Raise the errors that `scaled(model, scale)` would raise, without changing anything."""
    check_kind("model", model, nn.Module)
    exponent = power_of_two(scale)
    reshard(model)
    _refuse_overflow(local_parameters(model), exponent)


def power_of_two(scale: float) -> int:
    """The n of scale = 2^n; any other scale would round and could not be undone."""
    mantissa, exponent = math.frexp(scale) if isinstance(scale, SupportsFloat) else (math.nan, 0)
    if mantissa != 0.5:
        raise UsageError(
            f"a scale must be a positive power of two, so that scaling is exact and can be undone; got "
            f"{scale!r}: use 1024 where the literature uses 1000"
        )
    return exponent - 1


@dataclass
class _ScaledTensor:
    """One tensor of the journal; torch's version counter shows what has been done to it."""

    values: Tensor
    before: int
    restoring: int | None = None

    @property
    def multiplied(self) -> bool:
        return self.values._version != self.before

    @property
    def restored(self) -> bool:
        return self.restoring is not None and self.values._version != self.restoring


class _ScalingJournal:
    """Which tensors have been multiplied, correct even if an interrupt comes between two lines.

    Torch counts the in-place changes of each tensor. The count is stored *before*
    the multiplication, so the tensor itself shows at any later time whether the
    multiplication took place: the journal and the tensor can never disagree.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._entries: list[_ScaledTensor] = []

    def multiply(self, exponent: int) -> None:
        for values in self._tensors:
            self._entries.append(_ScaledTensor(values, values._version))
            _multiply(values, exponent)

    def undo(self, exponent: int) -> None:
        """Undo every multiplication; an interrupt during this is raised once everything is restored."""
        interrupt: KeyboardInterrupt | None = None
        while self._entries:
            try:
                self._undo_last(exponent)
            except KeyboardInterrupt as pressed:
                interrupt = pressed
        if interrupt is not None:
            raise interrupt

    def _undo_last(self, exponent: int) -> None:
        entry = self._entries[-1]
        if entry.multiplied and not entry.restored:
            entry.restoring = entry.values._version
            _multiply(entry.values, -exponent)
        self._entries.pop()


def _multiply(values: Tensor, exponent: int) -> None:
    """values · 2^exponent in place, as a single in-place change."""
    with torch.no_grad():
        if abs(exponent) <= _LARGEST_EXPONENT:
            values.mul_(2.0**exponent)
        else:
            values.copy_(_in_steps(values, exponent))


def _in_steps(values: Tensor, exponent: int) -> Tensor:
    step = math.copysign(_LARGEST_EXPONENT, exponent)
    result = values.clone()
    while abs(exponent) > _LARGEST_EXPONENT:
        result.mul_(2.0**step)
        exponent -= int(step)
    return result.mul_(2.0**exponent)


def _refuse_overflow(parameters: list[ParameterMemory], exponent: int) -> None:
    """Refuse a scale at which a value would overflow or underflow, before anything is changed."""
    problems = [found for memory in parameters for found in _problem(memory, exponent)]
    if any_rank(parameters, bool(problems)) and not problems:
        raise ScaleOverflow(
            f"another rank's shard would overflow at a scale of 2^{exponent}: see its message"
        )
    if problems:
        raise max(problems, key=lambda found: found[0])[1]


def _problem(memory: ParameterMemory, exponent: int) -> list[tuple[float, ModelError]]:
    """At most one error, with the value that decides which is worst: its message suits all tensors."""
    if exponent == 0 or memory.values.numel() == 0:
        return []
    smallest, largest = absolute_extremes(memory.values, need_smallest=exponent < 0)
    limits = torch.finfo(memory.values.dtype)
    if not math.isfinite(largest):
        return [(math.inf, ModelError(_nonfinite(memory)))]
    if exponent < 0 and math.ldexp(smallest, exponent) < limits.smallest_normal:
        return [(1 / smallest, ScaleOverflow(_underflow(memory, smallest, exponent)))]
    if exponent > 0 and _times(largest, exponent) > limits.max:
        return [(largest, ScaleOverflow(_overflow(memory, largest, exponent)))]
    return []


def _nonfinite(memory: ParameterMemory) -> str:
    return (
        f"parameter {memory.name!r} has NaN or infinite values, so the model cannot be scaled: "
        "use a checkpoint from before the run diverged"
    )


def _underflow(memory: ParameterMemory, smallest: float, exponent: int) -> str:
    return (
        f"parameter {memory.name!r} has the value {smallest:.3g}, which times 2^{exponent} is too small for "
        f"{_name(memory.values.dtype)} to be restored exactly: use float64 (--dtype float64)"
    )


def _overflow(memory: ParameterMemory, largest: float, exponent: int) -> str:
    fits = [dtype for dtype in _WIDER if _times(largest, exponent) <= torch.finfo(dtype).max]
    remedy = f"use {_name(fits[0])} (--dtype {_name(fits[0])})" if fits else "use a smaller scale"
    return (
        f"parameter {memory.name!r} reaches {largest:.3g}, which times 2^{exponent} is more than "
        f"{_name(memory.values.dtype)} can represent ({torch.finfo(memory.values.dtype).max:.3g}): {remedy}"
    )


def _times(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
