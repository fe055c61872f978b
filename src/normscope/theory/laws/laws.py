"""The growth laws as data: a link, a few basis functions of the step, and at most one shape parameter.

    value(t) = link⁻¹( Σ_j β_j φ_j(t; q) )

The coefficients β enter linearly, so only the shape q has to be searched for; the gradient that refines
a fit and gives its uncertainty follows from φ and ∂φ/∂q. The link is the identity, or the square for laws
that are linear in ρ² (the misaligned regime of Merrill et al. 2021, section 3: orthogonal updates add up
in ρ², not in ρ).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Basis = Callable[[Array, float], Array]


@dataclass(frozen=True)
class Law:
    """One growth law; a new law is one new entry of LAWS, or a plugin.

    `basis(t, q)` has shape (terms, points) and `slope(t, q)`, its derivative by q, too. `guesses(t)` are the
    shapes at which the search starts and `bounds(t)` limits q; a law without `slope` has no shape.
    `parameters` names the coefficients in the order of the basis, then the shape. A `squared` law is linear
    in ρ². A `kinked` law is not smooth in its shape. A law that `describes` says where a curve bends; it is
    never claimed to be the law of a series. The `basic` laws are the six that the paper's figures are
    compared with.

    >>> import numpy as np
    >>> from normscope.theory.laws.laws import Law
    >>> law = ns.Law("cube-root", "a·∛t + b", ("a", "b"), "growth with the cube root of the step",
    ...           basis=lambda t, _: np.stack([np.cbrt(t), np.ones_like(t)]))
    >>> law.value(np.array([0.0, 8.0]), np.array([2.0, 1.0]))
    array([1., 5.])
    """

    name: str
    formula: str
    parameters: tuple[str, ...]
    meaning: str
    basis: Basis
    slope: Basis | None = None
    guesses: Callable[[Array], Array] | None = None
    bounds: Callable[[Array], tuple[float, float]] | None = None
    squared: bool = False
    basic: bool = False
    kinked: bool = False
    describes: bool = False

    @property
    def terms(self) -> int:
        """The number of coefficients that enter linearly."""
        return len(self.parameters) - (self.slope is not None)

    def value(self, steps: Array, params: Array) -> Array:
        """The values of the law at `steps`."""
        return self.linked(params[: self.terms] @ self.basis(steps, self.shape(params)))

    def linked(self, linear: Array) -> Array:
        """The values that belong to sums over the basis; a squared law that falls to zero stays there."""
        return np.sqrt(np.maximum(linear, 0.0)) if self.squared else linear

    def gradient(self, steps: Array, params: Array) -> Array:
        """∂value/∂params, of shape (points, parameters); 0 where a squared law has fallen to zero."""
        return self.tangent(steps, params, self.basis(steps, self.shape(params))).T

    def tangent(self, steps: Array, params: Array, rows: Array) -> Array:
        """∂value/∂params, of shape (parameters, points), given the basis at these parameters."""
        linear = params[: self.terms]
        value = self.linked(linear @ rows) if self.squared else None
        if self.slope is not None:
            rows = np.concatenate([rows, (linear @ self.slope(steps, self.shape(params)))[None]])
        if value is None:
            return rows
        return rows * np.where(value > 1e-150, 0.5 / np.maximum(value, 1e-150), 0.0)

    def shape(self, params: Array) -> float:
        """The shape among the parameters; 0 for a law without one."""
        return float(params[-1]) if self.slope is not None else 0.0

    def at_bounds(self, steps: Array, params: Array) -> bool:
        """Whether the shape is at an end of its range; a change-point may be anywhere."""
        if self.bounds is None or self.kinked:
            return False
        low, high = self.bounds(steps)
        shape = self.shape(params)
        return shape <= low + 1e-6 * abs(low) or shape >= high - 1e-6 * abs(high)


#: The law that Merrill et al. (2021) report; every fit says how well it describes the series.
PAPER_LAW = "sqrt"

#: The range in which the free exponent is searched; a fit at either end means that no power fits.
EXPONENTS = (0.01, 5.0)


def _rows(*terms: Array, last: float) -> Array:
    """The terms of a basis, or of its slope, and a constant one after them."""
    rows = np.empty((len(terms) + 1, len(terms[0])))
    rows[-1] = last
    for i, term in enumerate(terms):
        rows[i] = term
    return rows


def _with_constant(*terms: Array) -> Array:
    return _rows(*terms, last=1.0)


def _powered(exponent: float) -> Basis:
    return lambda t, _: _with_constant(t**exponent)


def _power_slope(t: Array, p: float) -> Array:
    return _rows(t**p * np.log(np.maximum(t, 1e-300)), last=0.0)  # at t = 0 the power, 0, decides


def _relaxing(t: Array, rate: float) -> Array:
    """(1 − e^(−k·t))/k: begins like t, tends to 1/k; unlike e^(−k·t) it stays well-posed as k → 0."""
    return _with_constant(-np.expm1(-rate * t) / rate)


def _relaxing_slope(t: Array, rate: float) -> Array:
    lost = np.expm1(-rate * t)
    return _rows((rate * t * (lost + 1.0) + lost) / rate**2, last=0.0)


def _rates(t: Array) -> Array:
    return np.geomspace(0.01, 100.0, 15) / _span(t)


def _rate_bounds(t: Array) -> tuple[float, float]:
    return 1e-3 / _span(t), 500.0 / _span(t)


def _aligned(t: Array, c: float) -> Array:
    return np.exp(c * np.sqrt(t))[None]


def _aligned_slope(t: Array, c: float) -> Array:
    root = np.sqrt(t)
    return (root * np.exp(c * root))[None]


def _bent(t: Array, change: float) -> Array:
    root = np.sqrt(t)
    return _with_constant(root, np.maximum(root - np.sqrt(change), 0.0))


def _bent_slope(t: Array, change: float) -> Array:
    zero = np.zeros_like(t)
    return np.stack([zero, np.where(t > change, -0.5 / np.sqrt(max(change, 1e-12)), 0.0), zero])


def _changes(t: Array) -> Array:
    """Candidate change-points, with at least a tenth of the points, and three, on either side."""
    margin = max(3, len(t) // 10)
    inner = t[margin:-margin] if len(t) > 2 * margin else t[len(t) // 2 : len(t) // 2 + 1]
    return np.unique(inner[np.linspace(0, len(inner) - 1, 25).astype(int)])


def _change_bounds(t: Array) -> tuple[float, float]:
    inner = _changes(t)
    return float(inner[0]), float(inner[-1])


def _signed(values: Array) -> Array:
    return np.concatenate([-values[::-1], values])


def _span(t: Array) -> float:
    return float(t.max()) or 1.0


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law(
            "sqrt",
            "a·√t + b",
            ("a", "b"),
            "growth with the root of the step",
            _powered(0.5),
            basic=True,
        ),
        Law("linear", "a·t + b", ("a", "b"), "steady growth", _powered(1.0), basic=True),
        Law(
            "quartic-root", "a·t^¼ + b", ("a", "b"), "growth with the fourth root", _powered(0.25), basic=True
        ),
        Law(
            "log",
            "a·log(t+1) + b",
            ("a", "b"),
            "growth with the logarithm of the step",
            lambda t, _: _with_constant(np.log1p(t)),
            basic=True,
        ),
        Law(
            "sqrt-linear",
            "√(a·t + b)",
            ("a", "b"),
            "equal, misaligned updates: each adds the same amount to ρ²",
            _powered(1.0),
            squared=True,
            basic=True,
        ),
        Law(
            "power",
            "a·t^p + b",
            ("a", "b", "p"),
            "a power of the step",
            lambda t, p: _with_constant(t**p),
            _power_slope,
            lambda t: np.geomspace(0.05, 3.0, 15),
            lambda t: EXPONENTS,
            basic=True,
        ),
        Law(
            "saturating",
            "a·(1 − exp(−k·t))/k + b",
            ("a", "b", "k"),
            "exponential approach to a/k + b",
            _relaxing,
            _relaxing_slope,
            _rates,
            _rate_bounds,
        ),
        Law(
            "misaligned-decay",
            "√(a·(1 − exp(−k·t))/k + b)",
            ("a", "b", "k"),
            "misaligned updates against weight decay: ρ² approaches a/k + b",
            _relaxing,
            _relaxing_slope,
            _rates,
            _rate_bounds,
            squared=True,
        ),
        Law(
            "aligned",
            "a·exp(c·√t)",
            ("a", "c"),
            "updates along the parameters with a learning rate ∝ 1/√t",
            _aligned,
            _aligned_slope,
            lambda t: _signed(np.geomspace(0.05, 6, 7)) / _span(t) ** 0.5,
            lambda t: (-30 / _span(t) ** 0.5, 30 / _span(t) ** 0.5),
        ),
        Law(
            "piecewise",
            "a·√t + c·(√t − √τ)₊ + b",
            ("a", "c", "b", "tau"),
            "√t with another slope after step τ",
            _bent,
            _bent_slope,
            _changes,
            _change_bounds,
            kinked=True,
            describes=True,
        ),
    )
}
