"""The model as the monitor knows it: its parameters on all ranks, what measures them, the hooks on them.

When the model changes, another one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from normscope.errors import NormscopeError, UsageError
from normscope.live.hooks.end_of_backward import EndOfBackward
from normscope.live.hooks.forward_watch import ForwardWatch
from normscope.live.model.model_watch import ModelWatch
from normscope.live.model.optimizer_inspection import kind_of, updates_any
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import Layout, agreed_layout, gradient_leaves, local_parameters
from normscope.live.recording.recorder import Recorder
from normscope.words import some


class MonitoredModel:
    """What this rank knows of a model; every rank must create it at the same time."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        ranks: Ranks,
        updates: bool,
        measure: Callable[[Sequence[int]], None],
    ) -> None:
        mine, skipped = local_parameters(model)
        ids = {id(item.parameter) for item in mine}
        self.model = model
        self.skipped: Mapping[str, str] = skipped
        self.layout: Layout = agreed_layout(ranks, mine, _problem(optimizers, ids))
        self.kinds = ranks.union(kind_of(optimizer) for optimizer in optimizers)
        self.recorder = Recorder(self.layout, ranks, updates, self.kinds)
        self._watch = ModelWatch(model)
        self._measure = measure
        position = self.recorder.position
        leaves = gradient_leaves(model)
        self._leaves: list[int] = []
        self._positions: list[int] = []
        self._reached = {
            id(leaf): [position[id(p)] for p in members if id(p) in position] for leaf, members in leaves
        }
        self.backward = EndOfBackward([leaf for leaf, _ in leaves], self._gradients_ready)
        self.forward = ForwardWatch(model, repeat=ranks.world == 1)

    def _gradients_ready(self, leaves: list[Tensor]) -> None:
        """Measure the parameters of these leaves, which are nearly always those of the pass before."""
        ids = list(map(id, leaves))
        if ids != self._leaves:
            self._leaves = ids
            self._positions = [i for key in ids for i in self._reached.get(key, ())]
        self._measure(self._positions)

    def arm(self, gradients: bool, outputs: bool) -> None:
        """Look at the gradients, and at the outputs of modules, of the next step."""
        if gradients:
            self.backward.arm()
        if outputs:
            self.forward.arm()

    def disarm(self) -> None:
        """Remove the hooks on parameters and modules."""
        self.backward.disarm()
        self.forward.disarm()

    def changed(self) -> bool:
        """Whether the model's modules or parameters are no longer those that were looked at."""
        return self._watch.changed()

    def differences(self, before: MonitoredModel) -> list[str]:
        """What has changed since another look at the model, in words."""
        old = {info.name: info.shape for info in before.layout.infos}
        new = {info.name: info.shape for info in self.layout.infos}
        kept = dict(zip(before.recorder.names(), before.layout.parameters, strict=True))
        now = dict(zip(self.recorder.names(), self.layout.parameters, strict=True))
        found = {
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "replaced": [name for name in now if name in kept and now[name] is not kept[name]],
        }
        return [f"{some(names)} {what}" for what, names in found.items() if names]

    def untrained(self, optimizers: Sequence[Optimizer], before: MonitoredModel) -> list[str]:
        """New or replaced parameters that need a gradient and that no optimizer has."""
        trained = {id(p) for each in optimizers for group in each.param_groups for p in group["params"]}
        trained |= set(before.recorder.position)
        named = zip(self.recorder.names(), self.layout.parameters, strict=True)
        return [name for name, p in named if p.requires_grad and id(p) not in trained]


def _problem(optimizers: Sequence[Optimizer], parameters: set[int]) -> NormscopeError | None:
    """Why this rank cannot be monitored; all ranks raise it, or the others would wait for this one."""
    if all(updates_any(optimizer, parameters) for optimizer in optimizers):
        return None
    return UsageError(
        "the optimizer has none of the model's parameters: create the optimizer after the model "
        "is wrapped or moved, and pass the same model to Monitor"
    )
