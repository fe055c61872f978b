"""Leave a training exactly as it was: random numbers, buffers, and what autograd knows of changed tensors.

Modes of modules and of autograd are restored by `evaluating`, parameters bit for bit by `rising`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Afterwards, random states, buffers and the versions of all tensors of the model are as before.

    A buffer that was replaced by another tensor, as a cache that grew, stays: the module knows of it.
    """
    with ExitStack() as stack:
        stack.enter_context(_same_random_numbers(model))
        stack.enter_context(_same_versions(model))
        stack.enter_context(_same_buffers(model))
        yield


@contextmanager
def _same_random_numbers(model: nn.Module) -> Iterator[None]:
    python, numpy = random.getstate(), _numpy_random()
    numbers = numpy.get_state() if numpy is not None else None
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for kind, indices in _accelerators(model).items():
            stack.enter_context(torch.random.fork_rng(devices=sorted(indices), device_type=kind))
        try:
            yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.set_state(numbers)


def _numpy_random() -> Any:
    """NumPy's global generator, if NumPy is in use."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random


def _accelerators(model: nn.Module) -> dict[str, set[int]]:
    """The devices that the model is on, beside the processor, by kind."""
    found: dict[str, set[int]] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type not in ("cpu", "meta"):
            found.setdefault(tensor.device.type, set()).add(tensor.device.index or 0)
    return found


@contextmanager
def _same_versions(model: nn.Module) -> Iterator[None]:
    """Hide from autograd that tensors were changed: their values are the same again.

    A graph that was kept, or a backward pass that is under way, may still need them.
    """
    tensors = [_local(tensor) for tensor in (*model.parameters(), *model.buffers())]
    known = tuple(tensor for tensor in tensors if not tensor.is_inference() and not tensor.is_meta)
    if not known:
        yield
        return
    with torch.autograd.grad_mode._unsafe_preserve_version_counter(known):
        yield


def _local(tensor: Tensor) -> Tensor:
    local = getattr(tensor, "_local_tensor", tensor)
    return local if isinstance(local, Tensor) else tensor


@contextmanager
def _same_buffers(model: nn.Module) -> Iterator[None]:
    buffers = [buffer for buffer in model.buffers() if not buffer.is_meta]
    copies = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, copy in zip(buffers, copies, strict=True):
                if not torch.equal(_local(buffer), _local(copy)):
                    buffer.copy_(copy)
