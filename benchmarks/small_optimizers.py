"""Optimizers for small trainings, written out so that a run is the same with every version of torch."""

from __future__ import annotations

import torch
from torch import nn


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by five Newton–Schulz steps, for matrices; its signs elsewhere."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.mul_(0.95).add_(p.grad)
                if p.ndim == 2:
                    p.add_(orthogonal(momentum), alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)
                else:
                    p.add_(momentum.sign(), alpha=-group["lr"] / 20)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    x = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Lion(torch.optim.Optimizer):
    """The sign of a mixture of momentum and gradient, with decoupled weight decay."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((0.9 * momentum + 0.1 * p.grad).sign(), alpha=-group["lr"])
                momentum.mul_(0.99).add_(p.grad, alpha=0.01)
