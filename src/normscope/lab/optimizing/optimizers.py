"""The optimizers of the lab, each built from the same config, and their learning rate over time."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from normscope.errors import ModelError, UsageError
from normscope.lab.config import OptimizerConfig
from normscope.lab.optimizer_names import optimizer_class, takes_option
from normscope.lab.optimizing.muon import MuonWithAdamW, ParameterGroups, groups_by_part
from normscope.lab.optimizing.parameter_norms import body_parameters
from normscope.live.model.optimizer_inspection import decay_is_coupled, kind_of, momentum_of
from normscope.network.places.programs import failures_of, load_object
from normscope.theory.dynamics.lr_shapes import LRShape

FUSED = ("sgd", "adam", "adamw")
DEFAULTS = {"momentum": 0.9, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
"""Values of options that are None, for sgd's momentum, Adam's betas, and functions of the user's."""


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Return the optimizer of a model's parameters; tied parameters are updated once."""
    name = config.optimizer
    if not takes_option(name, "weight_decay"):
        config = replace(config, weight_decay=0.0)
    parameters = list(model.parameters())
    if name == "muon":
        matrices = {p for p in body_parameters(model) if p.dim() == 2}
        chosen = [p for p in parameters if p in matrices]
        if not matrices:
            raise UsageError(
                "muon has no effect: the body of the model has no matrices; choose another, such as adamw"
            )
        others = [p for p in parameters if p not in matrices]
        return MuonWithAdamW(_groups(chosen, config), _groups(others, config), config)
    kind = optimizer_class(name)
    if kind is None:
        return _own_optimizer(name, _groups(parameters, config), config)
    return kind(_groups(parameters, config), **_options(kind, name, config))


def _groups(parameters: list[nn.Parameter], config: OptimizerConfig) -> ParameterGroups:
    if config.decayed == "all":
        return [{"params": parameters, "weight_decay": config.weight_decay}]
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]


def _options(kind: type[Optimizer], name: str, config: OptimizerConfig) -> dict[str, Any]:
    """The arguments of a class that were set on purpose, and those for which the lab has its own default."""
    found: dict[str, Any] = {"lr": config.lr}
    if name in FUSED:
        config, found["fused"] = _filled(config), True
    if takes_option(name, "momentum") and config.momentum is not None:
        found["momentum"] = config.momentum
    if takes_option(name, "eps") and config.eps is not None:
        found["eps"] = config.eps
    if takes_option(name, "beta1"):
        betas = inspect.signature(kind).parameters["betas"].default
        first = betas[0] if config.beta1 is None else config.beta1
        found["betas"] = (first, betas[1] if config.beta2 is None else config.beta2)
    return found


def _filled(config: OptimizerConfig) -> OptimizerConfig:
    missing: dict[str, Any] = {
        name: value for name, value in DEFAULTS.items() if getattr(config, name) is None
    }
    return replace(config, **missing)


def _own_optimizer(name: str, groups: ParameterGroups, config: OptimizerConfig) -> Optimizer:
    function = load_object(name)
    with failures_of(name, "it was called with (parameter groups, OptimizerConfig)"):
        found = function(groups, _filled(config))
    if not isinstance(found, Optimizer):
        raise ModelError(f"{name} must return a torch.optim.Optimizer, but returned {type(found).__name__}")
    return found


def optimizer_notes(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """What the optimizer does to which tensors, for the run file; all have one learning rate."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [
        {
            "kind": kind_of(part),
            "momentum": None if math.isnan(beta := momentum_of(part, group)) else beta,
            "coupled": decay_is_coupled(part, group),
            "weight_decay": group.get("weight_decay", 0.0),
            "tensors": [names[parameter] for parameter in group["params"]],
        }
        for part, group in groups_by_part(optimizer)
    ]


def largest_decay(optimizer: Optimizer) -> float:
    """The weight decay of the parameters that decay; 0 if the optimizer has none."""
    return max(float(group.get("weight_decay", 0.0)) for group in optimizer.param_groups)


def lr_factor(config: OptimizerConfig, step: int, steps: int) -> float:
    """Factor of the peak learning rate at update `step` (1 … steps): linear warmup, then the schedule."""
    if step <= config.warmup:
        return step / config.warmup
    shape = LRShape(config.schedule, config.final, config.cooldown)
    return float(shape.factor(step, start=config.warmup, end=steps))


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter for the next update."""
    for group in optimizer.param_groups:
        group["lr"] = lr
