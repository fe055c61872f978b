"""The optimizers of the lab, each built from the same config, and their learning rate over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, AdamW, Optimizer

from normscope.anatomy import in_scope, locate_all
from normscope.lab.config import OptimizerConfig
from normscope.theory.dynamics.lr_shapes import LRShape
from normscope.weights.monitor.optimizer_inspection import decay_is_coupled, kind_of, momentum_of

ParameterGroups = list[dict[str, Any]]


def _adam(kind: type[Adam]) -> Callable[[ParameterGroups, OptimizerConfig], Optimizer]:
    def make(groups: ParameterGroups, config: OptimizerConfig) -> Optimizer:
        return kind(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)

    return make


def _sgd(groups: ParameterGroups, config: OptimizerConfig) -> Optimizer:
    return SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)


def _adafactor(groups: ParameterGroups, config: OptimizerConfig) -> Optimizer:
    """PyTorch's Adafactor: an update is lr (at most 1/√t) times the root mean square of the parameter."""
    return Adafactor(groups, lr=config.lr)


OPTIMIZERS: dict[str, Callable[[ParameterGroups, OptimizerConfig], Optimizer]] = {
    "sgd": _sgd,
    "adam": _adam(Adam),
    "adamw": _adam(AdamW),
    "adafactor": _adafactor,
}


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Return the optimizer of a model's parameters; tied parameters are updated once."""
    parameters = list(model.parameters())
    if config.decayed == "all":
        groups: ParameterGroups = [{"params": parameters, "weight_decay": config.weight_decay}]
    else:
        matrices = [p for p in parameters if p.dim() > 1]
        others = [p for p in parameters if p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
    return OPTIMIZERS[config.optimizer](groups, config)


def optimizer_notes(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """What the optimizer does to which tensors, for the run file; all have one learning rate."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [
        {
            "kind": kind_of(optimizer),
            "momentum": None if math.isnan(beta := momentum_of(optimizer, group)) else beta,
            "coupled": decay_is_coupled(optimizer, group),
            "weight_decay": group["weight_decay"],
            "tensors": [names[parameter] for parameter in group["params"]],
        }
        for group in optimizer.param_groups
        if group["params"]
    ]


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


def body_parameters(model: nn.Module) -> list[Tensor]:
    """The parameters of the body: without embeddings and output head."""
    named = dict(model.named_parameters())
    places = locate_all(named, {name: tuple(p.shape) for name, p in named.items()})
    counted = in_scope(list(named), "body", lambda name: (places[name].role, named[name].shape))
    return [named[name] for name in counted]


def parameter_norm(parameters: Iterable[Tensor]) -> float:
    """Euclidean norm of all these parameters together, summed in float64."""
    with torch.no_grad():
        norms = torch._foreach_norm([p.detach() for p in parameters], 2.0, torch.float64)
        return float(torch.linalg.vector_norm(torch.stack(list(norms))))
