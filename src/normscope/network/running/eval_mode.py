"""The state in which models are measured: no dropout, gradients, fused encoder path or compiled code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from normscope.option_checks import check_kind

_COMPILERS = ("torch._dynamo", "torch.nn.attention.flex_attention")


@contextmanager
def evaluating(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Switch off dropout, torch's fused encoder path and compiled code; restore everything afterwards.

    The fused path computes attention inside one kernel and repacks padded batches
    into nested tensors, which neither the tap nor a hook on a block could see. Compiled code
    would be compiled again for the hooks; what was compiled before stays valid.
    """
    check_kind("model", model, nn.Module)
    training = {module: module.training for module in model.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for module in training:  # not by eval(), which a module may use to change its parameters (LoRA)
            module.training = False
        with eager(), torch.set_grad_enabled(gradients):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for module, mode in training.items():
            module.training = mode


def eager() -> AbstractContextManager[Any]:
    """Inside, everything that was compiled runs its Python code."""
    if not any(
        name in sys.modules for name in _COMPILERS
    ):  # slow to import, and loaded if anything is compiled
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
