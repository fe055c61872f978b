"""When a step of the training ends, where several optimizers take turns."""

from __future__ import annotations

from collections.abc import Sequence

from torch.optim import Optimizer


class StepCycle:
    """When a step of the training ends: when every optimizer in use has stepped.

    An optimizer that has not stepped for `PATIENCE` steps of another is taken to be resting.
    """

    PATIENCE = 100

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = list(optimizers)
        self._made: dict[int, int] = {}
        self._resting: set[int] = set()

    def stepped(self, optimizer: Optimizer) -> bool:
        """Count a step of this optimizer; return whether that ends a step of the training."""
        if len(self.optimizers) == 1 and self.optimizers[0] is optimizer:
            return True
        self._resting.discard(id(optimizer))
        self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
        return all(id(each) in self._made or id(each) in self._resting for each in self.optimizers)

    def rests(self) -> list[Optimizer]:
        """The optimizers that have just begun to rest."""
        if max(self._made.values(), default=0) < self.PATIENCE:
            return []
        new = [o for o in self.optimizers if id(o) not in self._made and id(o) not in self._resting]
        self._resting.update(map(id, new))
        return new

    def end(self) -> None:
        """Begin the next step of the training."""
        self._made.clear()

    def add(self, optimizer: Optimizer) -> None:
        """Wait for this optimizer too."""
        self.optimizers.append(optimizer)

    def remove(self, optimizer: Optimizer) -> None:
        """No longer wait for this optimizer."""
        self.optimizers = [each for each in self.optimizers if each is not optimizer]
        self._made.pop(id(optimizer), None)
        self._resting.discard(id(optimizer))
