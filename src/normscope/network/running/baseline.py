"""A freshly initialised model of the same architecture: what a measurement is compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from normscope.errors import ModelError


def random_like(model: nn.Module, seed: int = 0) -> nn.Module:
    """A model like this one before training, by its own initialisation, from a seed.

    Hugging Face models are built anew from their config. Any other module is copied
    and each part initialised by its `reset_parameters` or `_init_weights`. The global
    random state is left as it was.
    """
    _refuse_sharded(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = _from_config(model) if hasattr(model, "config_class") else _reset(copy.deepcopy(model))
    first = next(model.parameters(), torch.empty(0))
    return fresh.to(device=first.device, dtype=first.dtype).train(model.training)


def _from_config(model: nn.Module) -> nn.Module:
    config = copy.deepcopy(model.config)
    build: Callable[..., nn.Module] = getattr(type(model), "_from_config", type(model))
    return build(config)


def _reset(model: nn.Module) -> nn.Module:
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for module in reversed(list(model.modules())):  # a parent may set its children's weights in its own way
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()
    own = getattr(model, "_init_weights", None)
    if callable(own):
        model.apply(own)
    for name, parameter in model.named_parameters():
        if torch.equal(parameter, before[name]):
            _draw(name, parameter)
    return model


def _draw(name: str, parameter: Tensor) -> None:
    """A parameter that no module initialises: N(0, 0.02²) for matrices; gains and biases keep a constant."""
    with torch.no_grad():
        if parameter.dim() >= 2:
            parameter.normal_(0, 0.02)
        elif _constant(parameter):
            return
        else:
            parameter.fill_(0.0 if "bias" in name else 1.0)


def _constant(parameter: Tensor) -> bool:
    """Whether it is still as an initialisation leaves a gain or a bias: all ones or all zeros."""
    if parameter.numel() == 0:
        return True
    value = parameter.flatten()[0].item()
    return value in (0.0, 1.0) and bool((parameter == value).all())


def _refuse_sharded(model: nn.Module) -> None:
    """Sharded models have no copy to initialise."""
    if any(hasattr(parameter, "_local_tensor") for parameter in model.parameters()):
        raise ModelError(
            "a sharded model cannot be initialised anew here: build the baseline before sharding and give "
            "it as baseline=model"
        )
