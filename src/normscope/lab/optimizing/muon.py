"""Muon for the body's matrices and AdamW for all other parameters, as one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch.optim import AdamW, Muon, Optimizer

from normscope.lab.config import OptimizerConfig

ParameterGroups = list[dict[str, Any]]


class MuonWithAdamW(Optimizer):
    """Two optimizers that share the groups and the state of this one, so that it is saved and loaded whole.

    Both have one learning rate: Muon's updates are scaled to the size of AdamW's
    (`adjust_lr_fn="match_rms_adamw"`, Liu et al. 2025).
    """

    def __init__(self, matrices: ParameterGroups, others: ParameterGroups, config: OptimizerConfig) -> None:
        """Groups of parameters with their weight decay; one of the two lists may have no parameters."""
        self.parts: list[Optimizer] = [
            make(groups, config)
            for make, groups in ((_muon, matrices), (_adamw, others))
            if any(group["params"] for group in groups)
        ]
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()
        for part, following in pairwise(self.parts):
            part.register_step_post_hook(partial(_step, following))

    def _share(self) -> None:
        """Let the two work on the groups and the state of this optimizer."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.parts[0].step()
        return loss


def _step(optimizer: Optimizer, *_: Any) -> None:
    """Update inside the other's step, so that all parameters are new before anyone who watches looks."""
    optimizer.step()


def optimizer_parts(optimizer: Optimizer) -> Sequence[Optimizer]:
    """The optimizers of one class each that an optimizer is made of."""
    return optimizer.parts if isinstance(optimizer, MuonWithAdamW) else [optimizer]


def groups_by_part(optimizer: Optimizer) -> Iterator[tuple[Optimizer, dict[str, Any]]]:
    """Every parameter group that has parameters, with the optimizer that updates it."""
    for part in optimizer_parts(optimizer):
        yield from ((part, group) for group in part.param_groups if group["params"])


def _muon(groups: ParameterGroups, config: OptimizerConfig) -> Optimizer:
    options: dict[str, Any] = {"momentum": config.momentum, "eps": config.eps}
    given = {name: value for name, value in options.items() if value is not None}
    return Muon(_filled(groups), lr=config.lr, adjust_lr_fn="match_rms_adamw", **given)


def _adamw(groups: ParameterGroups, config: OptimizerConfig) -> Optimizer:
    betas = (0.9 if config.beta1 is None else config.beta1, 0.999 if config.beta2 is None else config.beta2)
    eps = 1e-8 if config.eps is None else config.eps
    return AdamW(_filled(groups), lr=config.lr, betas=betas, eps=eps, fused=True)


def _filled(groups: ParameterGroups) -> ParameterGroups:
    return [group for group in groups if group["params"]]
