"""Multiply every parameter by any positive number, and restore it bit for bit.

Powers of two are exact and need no copy (`scaling`). Any other factor rounds, so that dividing would not give
the old values back: the parameters are copied first, multiplied from the copies, and restored from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from normscope.errors import ModelError, ScaleOverflow
from normscope.network.running.parameters import (
    ParameterMemory,
    absolute_extremes,
    any_rank,
    local_parameters,
    reshard,
)
from normscope.network.running.scaling import (
    ModuleT,
    check_scale,
    nonfinite_message,
    overflow_message,
    run_all,
    scaled,
)
from normscope.option_checks import check_kind, check_positive


@contextmanager
def multiplied(model: ModuleT, factor: float) -> Iterator[ModuleT]:
    """Inside, every parameter of `model` is multiplied by `factor`, a positive number.

    Tied parameters are multiplied once. Afterwards, also after an exception, the parameters are restored
    bit for bit. Unless the factor is 1, 2, 4, …, this needs memory for a second copy of the parameters.
    """
    check_multiple(model, factor)
    if _undone_exactly(factor):
        with scaled(model, factor):
            yield model
        return
    reshard(model)
    copies = [(memory.values, memory.values.clone()) for memory in local_parameters(model)]
    try:
        for values, _ in copies:
            values.mul_(factor)
        yield model
    finally:
        left: list[Callable[[], object]] = [partial(_restore, *pair) for pair in copies]
        run_all([*left, partial(reshard, model)])


def check_multiple(model: nn.Module, factor: float) -> None:
    """Raise the errors that `multiplied(model, factor)` would raise, without changing anything."""
    check_kind("model", model, nn.Module)
    check_positive("a scale", factor)
    if _undone_exactly(factor):
        check_scale(model, factor)
        return
    reshard(model)
    parameters = local_parameters(model)
    problems = [found for memory in parameters if memory.values.numel() for found in _problem(memory, factor)]
    if any_rank(parameters, bool(problems)) and not problems:
        raise ScaleOverflow(f"another rank's shard would overflow at a scale of {factor:g}: see its message")
    if problems:
        raise max(problems, key=lambda found: found[0])[1]


def is_power_of_two(factor: float) -> bool:
    """Whether multiplying by the factor changes nothing but exponents."""
    return math.frexp(factor)[0] == 0.5


def _undone_exactly(factor: float) -> bool:
    """Whether dividing gives every parameter back; a power of two below 1 may lose digits of tiny ones."""
    return factor >= 1 and is_power_of_two(factor)


def _restore(values: Tensor, copy: Tensor) -> None:
    values.copy_(copy)


def _problem(memory: ParameterMemory, factor: float) -> list[tuple[float, ModelError]]:
    """At most one error, with the value that decides which is worst."""
    _, largest = absolute_extremes(memory.values, need_smallest=False)
    if not math.isfinite(largest):
        return [(math.inf, ModelError(nonfinite_message(memory)))]
    product = largest * factor
    if product > torch.finfo(memory.values.dtype).max:
        return [(largest, ScaleOverflow(overflow_message(memory, largest, product, f"{factor:g}")))]
    return []
