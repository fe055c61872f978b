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
from normscope.weights.sums.live_sums import INIT, NONFINITE, SUMSQ, gradient_sums_of, have_gradients, sums_of

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
        plain: bool,
        tensors: Callable[[Indices], list[Tensor]],
        gradients: Callable[[Indices], list[Tensor | None]],
    ) -> None:
        """`plain`: parameters are summed themselves; else what `tensors` and `gradients` give of them."""
        self._plain, self._tensors, self._gradients = plain, tensors, gradients
        self._pending = np.zeros((size, len(GRADIENT_COLUMNS)))
        self._latest: Array | None = None
        """The sums of all gradients as backward left them, in place of `_pending`."""
        self._new: NDArray[np.bool_] | None = None
        self._reached: Sequence[int] = ()
        self._chosen: Indices = np.empty(0, dtype=np.int64)
        self._where: slice | Indices = self._chosen
        self._theta: list[Tensor] = []
        self._used, self._any_used = np.zeros_like(self._pending), False
        self.begin()

    def begin(self) -> None:
        """Begin a record: no step has used any gradient."""
        if self._any_used:
            self._used, self._any_used = (
                np.zeros_like(self._pending),
                False,
            )  # the record before keeps its own
        self._all_used: Array | None = None
        self._new = None
        self.when: str | None = None
        """When the gradients were measured: at the end of "backward", or at the "step"."""
        self.order: Sequence[int] = ()
        """The parameters in the order in which the last backward pass reached them."""

    def forget(self) -> None:
        """Drop what no step has used."""
        self._latest = None
        self._pending[:] = 0.0

    def recorded(self) -> Array:
        """GRADIENT_COLUMNS of the gradients that the steps of this record used, or the sums of all."""
        return self._used if self._all_used is None else self._all_used

    def continue_from(self, before: GradientSums, kept: Mapping[int, int]) -> None:
        """Take over another model's pending sums; `kept` maps positions here to positions there.

        Backward made the gradients of new parameters before they were known: they are left out.
        """
        before._settle()
        self._new = np.ones(len(self._pending), dtype=bool)
        for here, there in kept.items():
            self._pending[here] = before._pending[there]
            self._new[here] = False

    def measure(self, reached: Sequence[int]) -> None:
        """Sum the gradients that a backward pass has changed."""
        self.order = reached
        if reached is not self._reached and reached != self._reached:
            self._reached = reached
            self._chosen = np.array(sorted(set(reached)), dtype=np.int64)
            self._where = as_index(self._chosen, len(self._pending))
            self._theta = self._tensors(self._chosen) if self._plain else []
        if self._plain:
            sums, present = gradient_sums_of(self._theta)
            if present is None and isinstance(self._where, slice):
                self._latest = sums
                return
            self._settle()
            found = gradient_columns(sums)
            self._pending[self._where] = found if present is None else np.where(present[:, None], found, 0.0)
            return
        self._pending[self._chosen] = 0.0
        made = [gradient is not None for gradient in self._gradients(self._chosen)]
        self._measure(self._chosen[made])

    def use(self, optimizer: Optimizer, part: OptimizerPart) -> None:
        """What the step of this optimizer uses, of its parameters.

        A gradient that no backward pass was seen to make (assigned by hand, left from an earlier step) is
        measured now, after any clipping.
        """
        if (
            self._latest is not None
            and part.covers_all
            and self._new is None
            and have_gradients(self._theta)
            and backward_scale(optimizer) == 1.0
        ):
            self._all_used, self._latest, self.when = self._latest, None, "backward"
            return
        chosen, where = part.indices, part.where
        gradients = self._gradients(chosen)
        self._settle()
        present = np.array([gradient is not None for gradient in gradients], dtype=bool)
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
        self._use(where, pending if present.all() else np.where(present[:, None], pending, 0.0))

    def _use(self, where: slice | Indices, columns: Array) -> None:
        if self._all_used is not None:
            self._used, self._all_used = gradient_columns(self._all_used), None
        self._used[where], self._any_used = columns, True
        self._pending[where] = 0.0

    def _settle(self) -> None:
        """Write the latest sums to `_pending`."""
        if self._latest is not None:
            self._pending, self._latest = gradient_columns(self._latest), None

    def use_without_step(self, chosen: Indices) -> None:
        """Record the gradients of parameters that no optimizer has."""
        self._settle()
        self._use(chosen, self._pending[chosen])

    def _measure(self, chosen: Indices, scale: float = 1.0) -> None:
        """Sum the gradients of these parameters, which all have one."""
        if not len(chosen):
            return
        gradients = [gradient for gradient in self._gradients(chosen) if gradient is not None]
        found = gradient_columns(sums_of(gradients, None, self._tensors(chosen)))
        found[:, :2] /= (scale**2, scale)
        self._pending[chosen] = found


def gradient_columns(sums: Array) -> Array:
    """GRADIENT_COLUMNS of gradients, from their sums; [..., 6] becomes [..., 4]."""
    found = np.ones((*sums.shape[:-1], len(GRADIENT_COLUMNS)))
    found[..., 0], found[..., 1], found[..., 2] = sums[..., SUMSQ], sums[..., INIT], sums[..., NONFINITE]
    return found
