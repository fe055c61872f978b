"""The state in which models are measured: no dropout, no gradients, no fused encoder path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from normscope.option_checks import check_kind


@contextmanager
def evaluating(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Switch off dropout and torch's fused encoder path; restore every module's own mode afterwards.

    The fused path computes attention inside one kernel and repacks padded batches
    into nested tensors, which neither the tap nor a hook on a block could see.
    """
    check_kind("model", model, nn.Module)
    training = {module: module.training for module in model.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        model.eval()
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for module, mode in training.items():
            module.training = mode
