"""What must hold for the parameters after every update: a fixed norm, or no large singular values.

A constraint is an object with `start(model)`, called with the initial parameters, and `apply(model)`, called
after each step of the optimizer; or a function of the model, which is called at all of these times.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from normscope.errors import TrainingError, UsageError
from normscope.lab.constraint_names import FIXED_NORMS, SPECTRAL_CAP, spectral_cap
from normscope.lab.optimizing.parameter_norms import body_parameters, parameter_norm
from normscope.network.places.programs import failures_of, load_object


@runtime_checkable
class Constraint(Protocol):
    """What must hold for the parameters of a model after every update.

    One that changes while it is applied, such as a cap that is lowered step by step, needs `state_dict()` and
    `load_state_dict(state)` as well: a run that is resumed gives it back what it saved: numbers, strings,
    tensors, or lists and dictionaries of them.

    >>> class NoBiases:
    ...     def start(self, model):
    ...         self.biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    ...     def apply(self, model):
    ...         for bias in self.biases:
    ...             bias.data.zero_()
    >>> isinstance(NoBiases(), ns.Constraint)
    True
    """

    def start(self, model: nn.Module) -> None:
        """See the initial parameters, before the first update; also of a run that is resumed."""

    def apply(self, model: nn.Module) -> None:
        """Change the parameters in place, so that the constraint holds."""


@runtime_checkable
class KeepsState(Protocol):
    """A constraint whose state is part of the state of the run."""

    def state_dict(self) -> Any:
        """Return what a resumed run needs."""

    def load_state_dict(self, state: Any) -> None:
        """Continue with what `state_dict` returned."""


def build_constraint(name: str | None, dtype: torch.dtype) -> Constraint | None:
    """Return the constraint of a config; None if it has none."""
    if name is None:
        return None
    if name in FIXED_NORMS:
        return FixedNorm(name, dtype)
    if name.startswith(f"{SPECTRAL_CAP}:"):
        return SpectralCap(spectral_cap(name))
    with failures_of(name, "import it in Python to see where"):
        found = load_object(name)
        found = found() if inspect.isclass(found) else found
    if isinstance(found, Constraint) and isinstance(found, KeepsState):
        return OwnConstraintWithState(name, found)
    if isinstance(found, Constraint):
        return OwnConstraint(name, found.start, found.apply)
    if callable(found):
        return OwnConstraint(name, found, found)
    raise UsageError(
        "constraint must be a function of the model, or have start(model) and apply(model); "
        f"{name} is {found!r}"
    )


class OwnConstraint:
    """A constraint of the user's own; its failures are said to be its."""

    def __init__(
        self, name: str, start: Callable[[nn.Module], Any], apply: Callable[[nn.Module], Any]
    ) -> None:
        self._name, self._start, self._apply = name, start, apply

    def start(self, model: nn.Module) -> None:
        """See the initial parameters."""
        with (
            failures_of(self._name, "it was called with the initial model"),
            torch.no_grad(),
        ):
            self._start(model)

    def apply(self, model: nn.Module) -> None:
        """Change the parameters."""
        with failures_of(self._name, "it was called after an update"), torch.no_grad():
            self._apply(model)


class OwnConstraintWithState(OwnConstraint):
    """A constraint of the user's own that says what a resumed run needs."""

    def __init__(self, name: str, constraint: Any) -> None:
        super().__init__(name, constraint.start, constraint.apply)
        self._own: KeepsState = constraint

    def state_dict(self) -> Any:
        """The state of the user's constraint."""
        with failures_of(self._name, "it was called to save its state"):
            return self._own.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Give the user's constraint its state back."""
        with failures_of(self._name, "it was called with the state that it had saved"):
            self._own.load_state_dict(state)


PARAMETER_SETS: dict[str, Callable[[nn.Module], Sequence[Sequence[Tensor]]]] = {
    "fixed-norm": lambda model: [list(model.parameters())],
    "fixed-body-norm": lambda model: [body_parameters(model)],
    "fixed-tensor-norm": lambda model: [[p] for p in model.parameters() if p.dim() >= 2],
}
"""The sets of parameters of which each keeps its norm."""


class FixedNorm:
    """The norm of each set of parameters stays what it was: the set is scaled after every update."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise UsageError(
                f"{name} needs dtype float32 or float64: a small scaling is lost in the rounding of {dtype}"
            )
        self._name = name
        self._norms: list[float] = []

    def start(self, model: nn.Module) -> None:
        """Remember the norms."""
        sets = PARAMETER_SETS[self._name](model)
        if not any(map(len, sets)):
            raise UsageError(f"{self._name} has no effect: the model has no parameters that it would hold")
        self._norms = [parameter_norm(each) for each in sets]

    def apply(self, model: nn.Module) -> None:
        """Scale each set to the norm that it had."""
        with torch.no_grad():
            for parameters, wanted in zip(PARAMETER_SETS[self._name](model), self._norms, strict=True):
                torch._foreach_mul_(list(parameters), self._factor(wanted, parameter_norm(parameters)))

    def _factor(self, wanted: float, norm: float) -> float:
        if wanted == 0:
            return 0.0
        if norm == 0:
            raise TrainingError(f"{self._name} cannot hold: an update made all parameters zero")
        return wanted / norm

    def state_dict(self) -> list[float]:
        """The norms to return to, for the state of the run."""
        return self._norms

    def load_state_dict(self, state: list[float]) -> None:
        """Continue with these norms."""
        self._norms = state


class SpectralCap:
    """Singular values of every parameter with two or more dimensions are at most `cap`.

    Each is decomposed exactly (SVD in float64; more than two dimensions as [shape[0], −1]). Singular values
    above the cap become the cap; the vectors and all other values stay. The initial parameters are cut
    down too.
    """

    def __init__(self, cap: float) -> None:
        self._cap = cap

    def start(self, model: nn.Module) -> None:
        """Cut down the initial parameters."""
        self.apply(model)

    def apply(self, model: nn.Module) -> None:
        """Cut down every matrix that has a larger singular value."""
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() >= 2:
                    self._cut(parameter)

    def _cut(self, parameter: Tensor) -> None:
        left, values, right = torch.linalg.svd(parameter.flatten(1).double(), full_matrices=False)
        if values[0] > self._cap:
            cut = (left * values.clamp(max=self._cap)) @ right
            parameter.copy_(cut.view(parameter.shape))
