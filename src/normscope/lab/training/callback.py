"""The base class of everything that takes part in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normscope.lab.training.trainer import Trainer


class Callback:
    """Called during a run; override the methods you need. `trainer.step` is the number of updates done.

    >>> class CountParameters(ns.Callback):
    ...     def on_step(self, trainer):
    ...         trainer.record("parameters", sum(p.numel() for p in trainer.model.parameters()))
    """

    def on_start(self, trainer: Trainer) -> None:
        """Called before the first update of this process; `trainer.step` is not 0 in a resumed run."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after each update."""

    def on_save(self, trainer: Trainer) -> None:
        """Called before the state is saved: if the run is killed later, it continues from here."""

    def on_end(self, trainer: Trainer) -> None:
        """Called when the run ends, also by an error."""
