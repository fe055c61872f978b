"""Every parameter times a power of two, in place, and back again bit for bit.

Multiplying a float by 2^n only moves its exponent: no digit is lost as long as
nothing overflows, so the scaled network f(x; cθ) needs no second copy of θ and
leaves no trace behind. Scaling *up* is exact for subnormal numbers too, and
dividing again gives back exactly what was there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from normscope.errors import ModelError, ScaleOverflow, UsageError
from normscope.network.limit.parameters import Span, absolute_extremes, agree, local_parameters, reshard

Model = TypeVar("Model", bound=nn.Module)

_WIDER = (torch.bfloat16, torch.float32, torch.float64)
_STEP = 60  # 2^60 fits the arithmetic type of every dtype; larger factors go in several steps


@contextmanager
def scaled(model: Model, c: float) -> Iterator[Model]:
    """Inside, the model is f(x; cθ): every parameter is multiplied by c, a power of two.

    Nothing is copied. Tied parameters are scaled once; buffers are no parameters
    and stay as they are. On leaving, whatever the reason, the parameters are what
    they were, to the bit. Uses may be nested, also on DDP- and FSDP2-wrapped models.
    """
    exponent = power_of_two(c)
    reshard(model)
    spans = local_parameters(model)
    _foresee(spans, exponent)
    journal = _Journal([span.values for span in spans])
    try:
        journal.multiply(exponent)
        yield model
    finally:
        reshard(model)
        journal.undo(exponent)


def check_scale(model: nn.Module, c: float) -> None:
    """Raise what `scaled(model, c)` would raise, and touch nothing."""
    exponent = power_of_two(c)
    reshard(model)
    _foresee(local_parameters(model), exponent)


def power_of_two(c: float) -> int:
    """The n of c = 2^n; any other c would round, and could not be undone."""
    mantissa, exponent = math.frexp(c)
    if mantissa != 0.5:
        raise UsageError(
            f"a scale must be a positive power of two, which is exact and can be undone, not {c!r}: use 1024 "
            "where the literature uses 1000"
        )
    return exponent - 1


@dataclass
class _Entry:
    """One tensor's part in the journal; version counters tell what has happened to it."""

    values: Tensor
    before: int
    restoring: int | None = None

    @property
    def multiplied(self) -> bool:
        return self.values._version != self.before

    @property
    def restored(self) -> bool:
        return self.restoring is not None and self.values._version != self.restoring


class _Journal:
    """Which tensors have been multiplied, known even when an interrupt falls between two lines.

    Torch counts the in-place changes of each tensor. The count is noted *before*
    the multiplication, so at any later moment the tensor itself says whether the
    multiplication took place; no window is left in which the note and the truth differ.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._entries: list[_Entry] = []

    def multiply(self, exponent: int) -> None:
        for values in self._tensors:
            self._entries.append(_Entry(values, values._version))
            _multiply(values, exponent)

    def undo(self, exponent: int) -> None:
        """Undo every multiplication; an interrupt meanwhile is raised when all is restored."""
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
    """values · 2^exponent in place, as one change where the factor fits the dtype's arithmetic."""
    with torch.no_grad():
        if abs(exponent) <= _STEP:
            values.mul_(2.0**exponent)
        else:
            values.copy_(_in_steps(values, exponent))


def _in_steps(values: Tensor, exponent: int) -> Tensor:
    step = math.copysign(_STEP, exponent)
    result = values.clone()
    while abs(exponent) > _STEP:
        result.mul_(2.0**step)
        exponent -= int(step)
    return result.mul_(2.0**exponent)


def _foresee(spans: list[Span], exponent: int) -> None:
    """Refuse, before anything is touched, a scale that the largest or smallest value would not survive."""
    problems = [found for span in spans for found in _problem(span, exponent)]
    if agree(spans, bool(problems)) and not problems:
        raise ScaleOverflow(
            f"another rank's shard would not survive a scale of 2^{exponent}; its message says more"
        )
    if problems:
        raise max(problems, key=lambda found: found[0])[1]


def _problem(span: Span, exponent: int) -> list[tuple[float, ModelError]]:
    """At most one error, with how bad it is: the worst one names the dtype that would do for all."""
    if exponent == 0 or span.values.numel() == 0:
        return []
    smallest, largest = absolute_extremes(span.values, need_smallest=exponent < 0)
    limits = torch.finfo(span.values.dtype)
    if not math.isfinite(largest):
        return [(math.inf, ModelError(_nonfinite(span)))]
    if exponent < 0 and math.ldexp(smallest, exponent) < limits.smallest_normal:
        return [(1 / smallest, ScaleOverflow(_underflow(span, smallest, exponent)))]
    if exponent > 0 and _times(largest, exponent) > limits.max:
        return [(largest, ScaleOverflow(_overflow(span, largest, exponent)))]
    return []


def _nonfinite(span: Span) -> str:
    return (
        f"parameter {span.name!r} holds NaN or infinite values, so its scaled network does not exist: "
        "use a checkpoint from before the run diverged"
    )


def _underflow(span: Span, smallest: float, exponent: int) -> str:
    return (
        f"parameter {span.name!r} holds {smallest:.3g}, which times 2^{exponent} is too small for "
        f"{_name(span.values.dtype)} to be undone exactly: use float64 (--dtype float64)"
    )


def _overflow(span: Span, largest: float, exponent: int) -> str:
    fits = [dtype for dtype in _WIDER if _times(largest, exponent) <= torch.finfo(dtype).max]
    remedy = f"{_name(fits[0])} would do (--dtype {_name(fits[0])})" if fits else "use a smaller scale"
    return (
        f"parameter {span.name!r} reaches {largest:.3g}, and times 2^{exponent} that is more than "
        f"{_name(span.values.dtype)} can hold ({torch.finfo(span.values.dtype).max:.3g}): {remedy}"
    )


def _times(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
