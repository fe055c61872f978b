"""Multiply every parameter by a power of two, in place, and restore it bit for bit.

Multiplying a float by 2^n only changes its exponent: no digit is lost as long as
nothing overflows, so the scaled network f(x; cθ) needs no second copy of θ.
Scaling *up* is exact for subnormal numbers too, and dividing again restores
exactly the old value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
    with rising(model) as scaling:
        scaling.check(scale)
        scaling.set(scale)
        yield model


@contextmanager
def rising(model: nn.Module) -> Iterator[ModelScale]:
    """Inside, the model can be set to one scale after another, each by a single multiplication.

    Afterwards, also after an exception, the parameters are restored bit for bit, as by `scaled`.
    """
    check_kind("model", model, nn.Module)
    scaling = ModelScale(model)
    try:
        yield scaling
    finally:
        scaling.restore()


def check_scale(model: nn.Module, scale: float) -> None:
    """Raise the errors that `scaled(model, scale)` would raise, without changing anything."""
    check_kind("model", model, nn.Module)
    ModelScale(model).check(scale)


def power_of_two(scale: float) -> int:
    """The n of scale = 2^n; any other scale would round and could not be undone."""
    mantissa, exponent = math.frexp(scale) if isinstance(scale, SupportsFloat) else (math.nan, 0)
    if mantissa != 0.5:
        raise UsageError(
            f"a scale must be a positive power of two, so that scaling is exact and can be undone; got "
            f"{scale!r}: use 1024 where the literature uses 1000"
        )
    return exponent - 1


class ModelScale:
    """The scale of a model's parameters: their range is looked at once, before the first change."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        reshard(model)
        self._parameters = local_parameters(model)
        self._tensors = [_ScaledTensor(memory.values) for memory in self._parameters]
        self._extremes: dict[tuple[int, bool], tuple[float, float]] = {}

    def check(self, scale: float) -> None:
        """Raise an error if a value would overflow or underflow at this scale; nothing is changed."""
        exponent = power_of_two(scale)
        problems = [
            found
            for number, memory in enumerate(self._parameters)
            if exponent != 0 and memory.values.numel()
            for found in _problem(memory, exponent, self._range(number, small=exponent < 0))
        ]
        if any_rank(self._parameters, bool(problems)) and not problems:
            raise ScaleOverflow(
                f"another rank's shard would overflow at a scale of 2^{exponent}: see its message"
            )
        if problems:
            raise max(problems, key=lambda found: found[0])[1]

    def set(self, scale: float) -> None:
        """Make the model f(x; cθ) for a scale that has been checked; 1 is the model itself."""
        exponent = power_of_two(scale)
        reshard(self._model)
        for tensor in self._tensors:
            tensor.set(exponent)

    def restore(self) -> None:
        """Undo every multiplication; an interrupt during this is raised once everything is restored."""
        left: list[Callable[[], object]] = [partial(tensor.set, 0) for tensor in self._tensors]
        run_all([*left, partial(reshard, self._model)])

    def _range(self, number: int, *, small: bool) -> tuple[float, float]:
        """The extremes of a parameter's own values; they are those at scale 1 whatever the scale is now."""
        if (number, small) not in self._extremes:
            now = self._tensors[number].exponent
            found = absolute_extremes(self._parameters[number].values, need_smallest=small)
            self._extremes[number, small] = (math.ldexp(found[0], -now), math.ldexp(found[1], -now))
        return self._extremes[number, small]


def run_all(calls: list[Callable[[], object]]) -> None:
    """Make all calls, the last one first; an interrupt is raised once all have been made.

    A call that was interrupted is made again, so it must be one that may be repeated.
    """
    interrupt: KeyboardInterrupt | None = None
    left = list(calls)
    while left:
        try:
            while left:
                left[-1]()
                left.pop()
        except KeyboardInterrupt as pressed:
            interrupt = pressed
    if interrupt is not None:
        raise interrupt


class _ScaledTensor:
    """One tensor and its scale, known even if an interrupt comes between two lines.

    Torch counts the in-place changes of each tensor. The count is stored *before* each
    multiplication, in one assignment with the exponents before and after it, so the tensor
    itself shows at any later time whether the multiplication took place.
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._last = (0, 0, 0)  # the exponent before the last change, the one after it, and the count before

    @property
    def exponent(self) -> int:
        before, after, count = self._last
        return before if before == after or self._values._version == count else after

    def set(self, exponent: int) -> None:
        now = self.exponent
        if now != exponent:
            self._last = (now, exponent, self._values._version)
            _multiply(self._values, exponent - now)


def _multiply(values: Tensor, exponent: int) -> None:
    """values · 2^exponent in place, as a single in-place change.

    The values are detached, so there is no gradient to switch off, and no interrupt can leave it off.
    """
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


def _problem(
    memory: ParameterMemory, exponent: int, extremes: tuple[float, float]
) -> list[tuple[float, ModelError]]:
    """At most one error, with the value that decides which is worst: its message suits all tensors."""
    smallest, largest = extremes
    limits = torch.finfo(memory.values.dtype)
    if not math.isfinite(largest):
        return [(math.inf, ModelError(nonfinite_message(memory)))]
    if exponent < 0 and math.ldexp(smallest, exponent) < limits.smallest_normal:
        return [(1 / smallest, ScaleOverflow(_underflow(memory, smallest, exponent)))]
    product = _times(largest, exponent)
    if exponent > 0 and product > limits.max:
        return [(largest, ScaleOverflow(overflow_message(memory, largest, product, f"2^{exponent}")))]
    return []


def nonfinite_message(memory: ParameterMemory) -> str:
    """Why parameters that are not finite cannot be scaled."""
    return (
        f"parameter {memory.name!r} has NaN or infinite values, so the model cannot be scaled: "
        "use a checkpoint from before the run diverged"
    )


def _underflow(memory: ParameterMemory, smallest: float, exponent: int) -> str:
    return (
        f"parameter {memory.name!r} has the value {smallest:.3g}, which times 2^{exponent} is too small for "
        f"{_name(memory.values.dtype)} to be restored exactly: use float64 (--dtype float64)"
    )


def overflow_message(memory: ParameterMemory, largest: float, product: float, factor: str) -> str:
    """That a parameter's largest value would overflow, and which dtype would do."""
    fits = [dtype for dtype in _WIDER if product <= torch.finfo(dtype).max]
    remedy = f"use {_name(fits[0])} (--dtype {_name(fits[0])})" if fits else "use a smaller scale"
    return (
        f"parameter {memory.name!r} reaches {largest:.3g}, which times {factor} is more than "
        f"{_name(memory.values.dtype)} can represent ({torch.finfo(memory.values.dtype).max:.3g}): {remedy}"
    )


def _times(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
