"""The one state in which models are measured: no dropout, no gradients, no fused shortcuts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Dropout off and torch's fused encoder path off; every module's own mode comes back on leaving.

    The fused path hides attention inside one kernel and repacks padded batches
    into nested tensors, so neither the tap nor a hook on a block could see them.
    """
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
