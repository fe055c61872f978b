"""What of a model runs as compiled code, which nothing can look into."""

from __future__ import annotations

import sys

from torch import nn


def has_compiled(model: nn.Module) -> bool:
    """Whether the model, or a module in it, is compiled: `torch.compile(module)` or `module.compile()`."""
    return any(
        "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def compiled_graphs() -> int:
    """How many graphs have been compiled in this process."""
    compiler = sys.modules.get("torch._dynamo.utils")
    return 0 if compiler is None else int(compiler.counters["stats"]["unique_graphs"])
