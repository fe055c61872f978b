"""How similar two sets of states of the same tokens are: linear CKA, and PWCCA.

Both compare what two networks tell apart, not in which coordinates: they do not change if the states are
shifted, scaled, rotated or mirrored; PWCCA's correlations do not change under any invertible linear map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from normscope.errors import UsageError

TOKENS_PER_DIMENSION = 10
"""What PWCCA needs. Of unrelated states it is almost √(dimensions/tokens): 0.26 here, 1 with few tokens."""

FULL_RANK = 0.9
"""PWCCA needs states that use this share of their dimensions: a few kinds of token span the same space in
every network, and would be similar whatever was learned."""


@dataclass(frozen=True, eq=False)
class CentredStates:
    """States [tokens, width] prepared for comparisons: float64, the mean of every column subtracted.

    `rows` are divided by their largest value, so that no power overflows. `rounding` has the norm of each
    column's rounding errors, in the same unit. `fault` says why there is nothing to compare, "" if there is.
    """

    rows: Tensor
    rounding: Tensor
    distinct: int
    fault: str = ""

    @classmethod
    def of(cls, states: Tensor) -> CentredStates:
        """Prepare states of any floating-point dtype."""
        if states.dim() != 2 or not states.is_floating_point():
            raise UsageError(f"states must be [tokens, width] of floats; got {list(states.shape)}")
        wide = states.detach().to("cpu", torch.float64)
        fault = _fault(wide, torch.finfo(states.dtype).eps)
        if fault:
            return cls(wide, wide.new_zeros(wide.shape[1]), 0, fault)
        unit = wide.abs().max()
        wide = wide / unit
        rounding = torch.finfo(states.dtype).eps * wide.norm(dim=0)
        centred = wide - wide.mean(0)
        # a column whose spread is only the rounding of its mean is constant
        noise = centred.norm(dim=0) <= torch.finfo(torch.float64).eps * len(wide) * wide.norm(dim=0)
        return cls(centred.masked_fill_(noise, 0), rounding, len(torch.unique(states, dim=0)))

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.rows.shape[1]

    @cached_property
    def own(self) -> tuple[float, float]:
        """HSIC of the states with themselves, biased and debiased."""
        return _hsic(self, self, debiased=False), _hsic(self, self, debiased=True)

    @cached_property
    def basis(self) -> Tensor:
        """An orthonormal basis of the columns, [tokens, rank]; the rest of the space is rounding.

        Each column is measured in units of its own rounding error, which CCA does not see. A direction
        counts if its singular value is above what random errors of that size would have.
        """
        tokens, width = self.rows.shape
        scaled = self.rows / torch.where(self.rounding > 0, self.rounding, 1)
        q, r = torch.linalg.qr(scaled)
        left, sizes, _ = torch.linalg.svd(r, full_matrices=False)
        largest = sizes.max().item() if len(sizes) else 0.0
        computed = max(tokens, width) * torch.finfo(torch.float64).eps * largest
        found: Tensor = q @ left[:, sizes > max(1 + math.sqrt(width / tokens), computed)]
        return found

    @property
    def enough_for_pwcca(self) -> bool:
        """Whether PWCCA means something: TOKENS_PER_DIMENSION different states, and FULL_RANK."""
        if self.fault or self.distinct < TOKENS_PER_DIMENSION * self.width:
            return False
        return self.basis.shape[1] + 1 >= FULL_RANK * self.width  # + 1: layer normalisation removes one


def linear_cka(x: Tensor | CentredStates, y: Tensor | CentredStates, *, debiased: bool = False) -> float:
    """Linear centred kernel alignment of states [tokens, width] of the same tokens: 0 to 1, symmetric.

    ‖YᵀX‖² / (‖XᵀX‖·‖YᵀY‖) with centred columns (Kornblith et al. 2019). With few tokens it is too high:
    about d/(d + n) for unrelated states of n tokens and width d. `debiased` uses the unbiased estimator of
    HSIC instead (Song et al. 2012), which is 0 on average for unrelated states, and may be slightly negative.
    NaN if states are constant or not finite, or if there are too few tokens for the estimator.
    """
    a, b = _pair(x, y)
    if a.fault or b.fault:
        return math.nan
    shared, squared = _hsic(a, b, debiased), a.own[debiased] * b.own[debiased]
    if a.own[debiased] <= 0 or squared <= 0:
        return math.nan
    found = shared / math.sqrt(squared)
    return found if debiased else min(found, 1.0)


def pwcca(x: Tensor | CentredStates, y: Tensor | CentredStates) -> float:
    """Projection-weighted canonical correlation of states [tokens, width] of the same tokens: 0 to 1.

    The mean of the canonical correlations of x and y, each weighted by how much of x its direction in x
    accounts for (Morcos et al. 2018): the weights are from x, so pwcca(x, y) and pwcca(y, x) differ. Only
    as many directions are compared as the lower rank has. With few tokens it is high whatever the states
    are: see `CentredStates.enough_for_pwcca`. NaN if states are constant or not finite.
    """
    a, b = _pair(x, y)
    if a.fault or b.fault or not a.basis.shape[1] or not b.basis.shape[1]:
        return math.nan
    directions, correlations, _ = torch.linalg.svd(a.basis.T @ b.basis, full_matrices=False)
    weights = (directions.T @ (a.basis.T @ a.rows)).abs().sum(1)
    return float((weights * correlations.clamp(max=1)).sum() / weights.sum())


def _pair(x: Tensor | CentredStates, y: Tensor | CentredStates) -> tuple[CentredStates, CentredStates]:
    a, b = (given if isinstance(given, CentredStates) else CentredStates.of(given) for given in (x, y))
    if len(a.rows) != len(b.rows):
        raise UsageError(
            f"states must be of the same tokens; got {len(a.rows)} tokens and {len(b.rows)} tokens"
        )
    return a, b


def _fault(states: Tensor, rounding: float) -> str:
    if not states.numel():
        return "empty"
    if not states.isfinite().all():
        return "not finite"
    spread = states.amax(0) - states.amin(0)
    return "constant" if (spread <= 2 * rounding * states.abs().amax(0)).all() else ""


def _hsic(x: CentredStates, y: CentredStates, debiased: bool) -> float:
    """Tr(KL) for the linear kernels K and L of centred states, up to a factor that cancels in CKA.

    Debiased: without the diagonals, n(n−3) times the estimator of Song et al. As the columns are centred, a
    row of K without its diagonal sums to minus the diagonal. NaN with fewer than 4 tokens.
    """
    a, b, tokens = x.rows, y.rows, len(x.rows)
    small = min(a.shape[1], b.shape[1]) < tokens
    shared = ((a.T @ b).square() if small else (a @ a.T) * (b @ b.T)).sum().item()
    if not debiased:
        return shared
    if tokens < 4:
        return math.nan
    p, q = a.square().sum(1), b.square().sum(1)
    diagonal, product = (p * q).sum().item(), p.sum().item() * q.sum().item()
    return shared - diagonal * (1 + 2 / (tokens - 2)) + product / ((tokens - 1) * (tokens - 2))
