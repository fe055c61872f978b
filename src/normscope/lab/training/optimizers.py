"""The optimizers of the lab, each built from the same config."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, AdamW, Optimizer

from normscope.lab.config import OptimizerConfig

Groups = list[dict[str, Any]]


def _adam(kind: type[Adam]) -> Callable[[Groups, OptimizerConfig], Optimizer]:
    def build(groups: Groups, config: OptimizerConfig) -> Optimizer:
        return kind(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)

    return build


def _sgd(groups: Groups, config: OptimizerConfig) -> Optimizer:
    return SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)


def _adafactor(groups: Groups, config: OptimizerConfig) -> Optimizer:
    """PyTorch's: the step is lr (at most 1/√t) times the root mean square of the parameter."""
    return Adafactor(groups, lr=config.lr)


BUILDERS: dict[str, Callable[[Groups, OptimizerConfig], Optimizer]] = {
    "sgd": _sgd,
    "adam": _adam(Adam),
    "adamw": _adam(AdamW),
    "adafactor": _adafactor,
}


def build(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """The optimizer for a model's parameters; tied ones come once."""
    parameters = list(model.parameters())
    if config.decayed == "all":
        groups: Groups = [{"params": parameters, "weight_decay": config.weight_decay}]
    else:
        matrices = [p for p in parameters if p.dim() > 1]
        others = [p for p in parameters if p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
    return BUILDERS[config.optimizer](groups, config)


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """The rate of the next update, for every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def parameter_norm(parameters: Iterable[Tensor]) -> float:
    """The Euclidean norm of all these parameters together, summed in float64."""
    with torch.no_grad():
        norms = torch._foreach_norm([p.detach() for p in parameters], 2.0, torch.float64)
        return float(torch.linalg.vector_norm(torch.stack(list(norms))))
