"""Models compiled by `torch.compile`: their own modules, and names without the wrapper's.

`torch.compile(module)` returns a wrapper that holds the module as `_orig_mod`. The wrapper
may be the model itself or any module inside it.
"""

from __future__ import annotations

from torch import nn

_WRAPPED = "_orig_mod"


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, without the wrapper of `torch.compile`."""
    while isinstance(inner := model._modules.get(_WRAPPED), nn.Module):
        model = inner
    return model


def modules_by_path(model: nn.Module) -> dict[str, nn.Module]:
    """Every module by its path, as the model would have it without `torch.compile`."""
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        if _WRAPPED not in module._modules:
            found[".".join(name for name in path.split(".") if name != _WRAPPED)] = module
    return found
