"""The size of updates, from which the theory predicts the equilibrium norm.

An update is decay plus the rest, θ ← (1 − ηλ)θ + η·v. The size u = ‖v‖ and the radial
part r = ⟨θ, v⟩/‖θ‖ are recorded at about a hundred steps of a run, over all
parameters (`update`, `radial`) and over the body (`body_update`, `body_radial`, `body_norm`).
`decayed` and `body_decayed` are the share of ρ² that weight decay acts on: less than 1 if only matrices
decay, 0 for Adam and its like, whose decay is part of v.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from normscope.lab.optimizing.muon import groups_by_part
from normscope.lab.optimizing.parameter_norms import body_parameters
from normscope.lab.training.callback import Callback
from normscope.lab.training.trainer import Trainer
from normscope.live.model.optimizer_inspection import decay_is_coupled

MEASURED_STEPS = 100


class UpdateSizeRecorder(Callback):
    """Records the size of updates, without weight decay."""

    def on_start(self, trainer: Trainer) -> None:
        """Register with the optimizer."""
        self._every = max(1, trainer.config.steps // MEASURED_STEPS)
        self._body = set(body_parameters(trainer.model))
        self._trainer = trainer
        self._before: dict[Tensor, Tensor] = {}
        trainer.optimizer.register_step_pre_hook(self._copy)

    def _copy(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._due(self._trainer, self._trainer.step + 1):
            parameters = (p for group in optimizer.param_groups for p in group["params"])
            self._before = {p: p.detach().clone() for p in parameters}

    def _due(self, trainer: Trainer, step: int) -> bool:
        return step % self._every == 0 or step in (1, trainer.config.steps)

    def on_step(self, trainer: Trainer) -> None:
        """Compare with the parameters before the update."""
        if not self._before or trainer.lr == 0:
            return
        everything, body = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
        for part, group in groups_by_part(trainer.optimizer):
            decoupled = isinstance(part, SGD) or not decay_is_coupled(part, group)
            decay = group.get("weight_decay", 0.0) if decoupled else 0.0
            for parameter in group["params"]:
                sums = _sums(self._before[parameter], parameter.detach(), trainer.lr, decay)
                everything += sums
                if parameter in self._body:
                    body += sums
        self._before = {}
        for prefix, found in (("", everything), ("body_", body)):
            update, radial, before, after, decayed = found.tolist()
            trainer.record(f"{prefix}update", math.sqrt(update))
            trainer.record(f"{prefix}radial", radial / math.sqrt(before) if before else 0.0)
            trainer.record(f"{prefix}decayed", decayed / before if before else 0.0)
        trainer.record("body_norm", math.sqrt(after))


def _sums(before: Tensor, after: Tensor, lr: float, decay: float) -> Tensor:
    """‖v‖², ⟨θ, v⟩, ‖θ‖² before and after, and of what is decayed, in float64."""
    before, after = before.double().flatten(), after.double().flatten()
    rest = (after - (1 - lr * decay) * before) / lr
    squared = before @ before
    decayed = squared if decay else torch.zeros_like(squared)
    return torch.stack([rest @ rest, before @ rest, squared, after @ after, decayed]).cpu()
