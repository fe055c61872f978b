"""A freshly initialised model of the same architecture, as the baseline of a measurement."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from normscope.errors import ModelError
from normscope.network.running.compiled import unwrapped
from normscope.option_checks import check_kind, check_seed


def random_like(model: nn.Module, *, seed: int = 0) -> nn.Module:
    """A model of the same architecture as `model`, before training, initialised from `seed`.

    Hugging Face models are built again from their config. Any other module is copied
    and each part initialised by its `reset_parameters` or `_init_weights`. The global
    random state is not changed.

    >>> import torch
    >>> import normscope as ns
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> one, two = ns.random_like(model, seed=1), ns.random_like(model, seed=1)
    >>> bool(torch.equal(one.linear1.weight, two.linear1.weight))
    True
    >>> bool(torch.equal(one.linear1.weight, model.linear1.weight))
    False
    """
    check_kind("model", model, nn.Module)
    seed = check_seed(seed)
    model = unwrapped(model)
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
    for module in reversed(list(model.modules())):  # parents last: they may reset their children too
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()
    initialise = getattr(model, "_init_weights", None)
    if callable(initialise):
        model.apply(initialise)
    for name, parameter in model.named_parameters():
        if torch.equal(parameter, before[name]):
            _initialise(name, parameter)
    return model


def _initialise(name: str, parameter: Tensor) -> None:
    """Initialise a parameter that its module left unchanged: matrices N(0, 0.02²), gains 1, biases 0."""
    with torch.no_grad():
        if parameter.dim() >= 2:
            parameter.normal_(0, 0.02)
        elif not _looks_initial(parameter):
            parameter.fill_(0.0 if "bias" in name else 1.0)


def _looks_initial(parameter: Tensor) -> bool:
    """Whether a gain or bias still has its initial value: all ones or all zeros."""
    if parameter.numel() == 0:
        return True
    value = parameter.flatten()[0].item()
    return value in (0.0, 1.0) and bool((parameter == value).all())


def _refuse_sharded(model: nn.Module) -> None:
    """ModelError for a sharded model, which cannot be copied here."""
    if any(hasattr(parameter, "_local_tensor") for parameter in model.parameters()):
        raise ModelError(
            "a sharded model cannot be copied and initialised here: build the baseline before sharding and "
            "pass it as baseline=model"
        )
