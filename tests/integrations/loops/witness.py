"""The same numbers as a monitor's, computed slowly inside the training loop in float64, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normscope.anatomy import unwrapped
from normscope.run import Run

COLUMNS = (
    "sumsq",
    "dot",
    "sumsq_delta",
    "dot_init",
    "absmax",
    "grad_sumsq",
    "grad_dot",
    "lr",
    "weight_decay",
)
Rows = dict[tuple[int, str], dict[str, float | None]]


def _whole(parameter: Tensor) -> Tensor:
    return parameter.detach()


def _own_gradient(parameter: Tensor) -> Tensor | None:
    return parameter.grad


def parameters_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """Each parameter once, under the name that the run file has."""
    return {unwrapped(name): p for name, p in model.named_parameters()}


@dataclass
class Witness:
    """Call `gradients` after backward, `before` and `after` around the optimizer's step."""

    model: nn.Module
    whole: Callable[[Tensor], Tensor] = _whole
    """The complete tensor of one that is sharded."""
    gradient: Callable[[Tensor], Tensor | None] = _own_gradient
    step: int = 0
    rows: Rows = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start: dict[int, Tensor] = {}
        self.previous: dict[str, Tensor] = {}
        self.slopes: dict[str, tuple[float, float]] = {}

    def values(self) -> dict[str, Tensor]:
        return {name: self.whole(p).double().clone() for name, p in parameters_of(self.model).items()}

    def gradients(self) -> None:
        """Note ‖g‖² and ⟨θ, g⟩; with accumulation, the last call before the step counts."""
        self.slopes = {}
        for name, p in parameters_of(self.model).items():
            if (found := self.gradient(p)) is not None:
                g, theta = self.whole(found).double(), self.whole(p).double()
                self.slopes[name] = float((g * g).sum()), float((theta * g).sum())

    def before(self) -> None:
        self.previous = self.values()
        for name, p in parameters_of(self.model).items():
            self.start.setdefault(id(p), self.previous[name])

    def after(self, rates: Mapping[int, tuple[float, float]], shown: bool = True) -> None:
        """Compute the rows of a step; `rates` are learning rate and weight decay by the parameter's id."""
        self.step += 1
        for name, p in parameters_of(self.model).items() if shown else ():
            theta, old = self.whole(p).double(), self.previous[name]
            lr, decay = rates.get(id(p), (None, None))
            trained = id(p) in rates
            moved = theta - old
            slope = self.slopes.get(name, (None, None))
            numbers = (
                (theta * theta).sum(), (old * moved).sum() if trained else 0.0, (moved * moved).sum(),
                (self.start[id(p)] * theta).sum(), theta.abs().max(),
            )  # fmt: skip
            row = [*map(float, numbers), *slope, lr, decay]
            self.rows[self.step, name] = dict(zip(COLUMNS, row, strict=True))

    def around(self, optimizer: torch.optim.Optimizer, step: Callable[[], object] | None = None) -> None:
        """Make one step of the optimizer."""
        self.before()
        rates = rates_of(optimizer)
        (step or optimizer.step)()
        self.after(rates)


def rates_of(optimizer: torch.optim.Optimizer) -> dict[int, tuple[float, float]]:
    groups = optimizer.param_groups
    return {id(p): (float(g["lr"]), float(g["weight_decay"])) for g in groups for p in g["params"]}


def recorded(path: Path) -> Rows:
    """The rows of a run file, without those of step 0."""
    sql = f"SELECT step, name, {', '.join(COLUMNS)} FROM weight JOIN tensor ON tensor.id = weight.tensor"
    with Run(path) as run:
        found = run.query(f"{sql} WHERE step > 0")
    return {(row[0], row[1]): dict(zip(COLUMNS, row[2:], strict=True)) for row in found}


def assert_rows(path: Path, expected: Rows, exact: float = 1e-7) -> None:
    """Every number in the file is the expected one, and there is none more or less.

    A dot product is compared on the scale of its factors: ⟨a, b⟩ may be close to zero by cancellation.
    """
    found = recorded(path)
    assert found.keys() == expected.keys() and found
    for key, row in expected.items():
        theta, moved, slope = (row[c] or 0.0 for c in ("sumsq", "sumsq_delta", "grad_sumsq"))
        scale = {"dot": (theta * moved) ** 0.5, "grad_dot": (theta * slope) ** 0.5}
        for column, value in row.items():
            seen = found[key][column]
            where = (key, column)
            assert (seen is None) == (value is None), (where, seen, value)
            if value is not None:
                assert seen == pytest.approx(value, rel=exact, abs=exact * scale.get(column, 0.0)), where


@dataclass(frozen=True)
class Outcome:
    """What a training ended with."""

    losses: list[float]
    parameters: dict[str, Tensor]

    @classmethod
    def of(cls, losses: list[float], model: nn.Module, whole: Callable[[Tensor], Tensor] = _whole) -> Outcome:
        return cls(losses, {name: whole(p).clone() for name, p in parameters_of(model).items()})

    def assert_same(self, other: Outcome) -> None:
        """Bit for bit: the monitor has changed nothing."""
        assert self.losses == other.losses and len(self.losses) > 0
        assert self.parameters.keys() == other.parameters.keys()
        for name, value in self.parameters.items():
            assert torch.equal(value, other.parameters[name]), name
