"""The sums of gradients: measured when backward ends, those of an optimizer when its step begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from normscope.live.model.optimizer_inspection import backward_scale, step_scale
from normscope.live.model.wrapped_optimizers import WrappedOptimizer
from normscope.live.recording.optimizer_part import OptimizerPart, as_index
from normscope.weights.sums.live_sums import INIT, NONFINITE, SUMSQ, SumCache, TensorList, sums_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

GRADIENT_COLUMNS = ("grad_sumsq", "grad_dot", "grad_nonfinite", "gradients")


class GradientSums:
    """‖g‖², ⟨θ, g⟩, non-finite values and presence of each parameter's gradient.

    What backward left is `pending` until an optimizer's step begins; from then on it is `used`, and
    another backward pass through the same parameters does not change it.
    """

    def __init__(
        self,
        size: int,
        tensors: Callable[[Indices], list[Tensor]],
        gradients: Callable[[Indices], list[Tensor | None]],
    ) -> None:
        self._tensors, self._gradients = tensors, gradients
        self._pending = np.zeros((size, len(GRADIENT_COLUMNS)))
        self._new: NDArray[np.bool_] | None = None
        self._reached: Sequence[int] = ()
        self._chosen: Indices = np.empty(0, dtype=np.int64)
        self._where: slice | Indices = self._chosen
        self._theta, self._made = TensorList(()), TensorList(())
        self._cache = SumCache()
        self.begin()

    def begin(self) -> None:
        """Begin a record: no step has used any gradient."""
        self.used = np.zeros_like(self._pending)
        self._new = None
        self.when: str | None = None
        """When the gradients were measured: at the end of "backward", or at the "step"."""
        self.order: Sequence[int] = ()
        """The parameters in the order in which the last backward pass reached them."""

    def forget(self) -> None:
        """Drop what no step has used."""
        self._pending[:] = 0.0

    def continue_from(self, before: GradientSums, kept: Mapping[int, int]) -> None:
        """Take over another model's pending sums; `kept` maps positions here to positions there.

        Backward made the gradients of new parameters before they were known: they are left out.
        """
        self._new = np.ones(len(self._pending), dtype=bool)
        for here, there in kept.items():
            self._pending[here] = before._pending[there]
            self._new[here] = False

    def measure(self, reached: Sequence[int]) -> None:
        """Sum the gradients that a backward pass has changed."""
        self.order = reached
        if reached != self._reached:
            self._reached = list(reached)
            self._chosen = np.array(sorted(set(reached)), dtype=np.int64)
            self._where = as_index(self._chosen, len(self._pending))
            self._theta = TensorList(self._tensors(self._chosen))
        gradients = self._gradients(self._chosen)
        made = [gradient for gradient in gradients if gradient is not None]
        if len(made) < len(gradients):
            self._pending[self._chosen] = 0.0
            self._measure(self._chosen[[gradient is not None for gradient in gradients]])
            return
        self._made.replace(made)
        self._pending[self._where] = _columns(sums_of(self._made, None, self._theta, self._cache))

    def use(self, optimizer: Optimizer, part: OptimizerPart) -> None:
        """What the step of this optimizer uses, of its parameters.

        A gradient that no backward pass was seen to make (assigned by hand, left from an earlier step) is
        measured now, after any clipping.
        """
        chosen, where = part.indices, part.where
        present = np.array([g is not None for g in self._gradients(chosen)], dtype=bool)
        if self._new is not None:
            present &= ~self._new[where]
        pending = self._pending[where]
        seen = pending[:, 3] > 0
        if seen.any() and (scale := backward_scale(optimizer)) != 1.0:
            self._pending[chosen[:, None], [0, 1]] /= (scale**2, scale)
        if not (seen >= present).all():
            self._measure(chosen[present & ~seen], step_scale(optimizer))
        if present.any() and self.when != "backward":
            unclipped = isinstance(optimizer, WrappedOptimizer) and optimizer.clips_in_step
            self.when = "backward" if seen.any() or unclipped else "step"
        pending = self._pending[where]
        self.used[where] = pending if present.all() else np.where(present[:, None], pending, 0.0)
        self._pending[where] = 0.0

    def use_without_step(self, chosen: Indices) -> None:
        """Record the gradients of parameters that no optimizer has."""
        self.used[chosen] = self._pending[chosen]
        self._pending[chosen] = 0.0

    def any_nonfinite(self) -> bool:
        """Whether a gradient of this record has NaN or infinite values."""
        return bool(self._pending[:, 2].any() or self.used[:, 2].any())

    def _measure(self, chosen: Indices, scale: float = 1.0) -> None:
        """Sum the gradients of these parameters, which all have one."""
        if not len(chosen):
            return
        gradients = [gradient for gradient in self._gradients(chosen) if gradient is not None]
        found = _columns(sums_of(gradients, None, self._tensors(chosen)))
        found[:, :2] /= (scale**2, scale)
        self._pending[chosen] = found


def _columns(sums: Array) -> Array:
    """GRADIENT_COLUMNS of gradients, from their sums."""
    found = np.ones((len(sums), len(GRADIENT_COLUMNS)))
    found[:, 0], found[:, 1], found[:, 2] = sums[:, SUMSQ], sums[:, INIT], sums[:, NONFINITE]
    return found
