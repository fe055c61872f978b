"""How a network's output grows when its parameters do: the degree k of f(x; cθ) = c^k f(x; θ).

k is measured in two independent ways: as the slope of log‖f(cθ)‖ on log c, and with
Euler's identity ⟨θ, ∇f⟩ = k·f at one point, by autograd. Where a degree exists they
agree. A degree also requires that the direction of f(cθ) does not depend on c, which a
slope does not show; the cosine of f(cθ) with its limit does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from normscope.errors import ModelError, UsageError
from normscope.network.measuring.euler import euler_degree
from normscope.network.running.batches import Batch, Batches, as_batches, sample
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.multiples import check_multiple, multiplied
from normscope.network.running.scaling import power_of_two, scaled
from normscope.network.watching.block_lists import BlockList, find_blocks
from normscope.network.watching.finite import blame_for_nonfinite
from normscope.network.watching.hidden_states import (
    OUTPUT,
    Edge,
    first_states,
    real_tokens,
    unit_rows,
    visiting,
)
from normscope.option_checks import check_kind, check_number, check_positive, check_progress
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular
from normscope.words import some


@dataclass(frozen=True)
class Curve:
    """The `scales` at which to measure, positive numbers, and when a degree exists.

    `reference` is the scale that represents the limit in the cosine curve; Merrill et al. (2021) use
    scales from 1 to 10 and the reference 1000. A scale that is not a power of two needs memory for a copy
    of the parameters. A degree `exists` if the slope is constant (its interval is at most ±
    `tolerance`), Euler's identity gives the same number, and the residual of Euler's identity is at
    most `tolerance` of ‖f‖. `at` is a power of two that every parameter is multiplied by first: the
    degree is that of the network at a larger norm.

    >>> ns.Curve().scales[-1], ns.Curve(scales=range(1, 11), reference=1000).scales[-1]
    (256.0, 10.0)
    """

    scales: Sequence[float] = tuple(2.0**n for n in range(9))
    reference: float = 2.0**14
    tolerance: float = 0.05
    at: float = 1.0

    def __post_init__(self) -> None:
        check_kind("scales", self.scales, (tuple, list, range), "a list of positive numbers")
        object.__setattr__(self, "scales", tuple(check_positive("a scale", c) for c in self.scales))
        object.__setattr__(self, "reference", check_positive("reference", self.reference))
        check_number("tolerance", self.tolerance, 0)
        power_of_two(self.at)
        if len(set(self.scales)) < 3:
            raise UsageError(f"a slope needs at least three different scales, got {list(self.scales)}")


@dataclass(frozen=True)
class Degree:
    """The degree of one layer's states, or of the `output`.

    >>> import torch
    >>> import normscope as ns
    >>> ns.homogeneity(torch.nn.Linear(4, 4, bias=False), torch.randn(3, 4)).output.exists
    True
    """

    module: str
    layer: int
    """−1 for the output."""
    c: tuple[float, ...]
    """The scales of the curve."""
    norm: tuple[float, ...]
    cosine: tuple[float, ...]
    """The cosine of f(cθ) with f at the reference scale."""
    degree: float
    """The slope of log‖f(cθ)‖ on log c."""
    low: float
    high: float
    """The 95 % interval of the slope."""
    euler: float
    """The degree k by Euler's identity."""
    residual: float
    """‖Jθ − k·f‖/‖f‖: 0 if the identity holds exactly."""
    exists: bool


@dataclass(frozen=True, repr=False)
class Homogeneity(Tabular):
    """Degrees by layer, the model's output last, and warnings for the reader.

    >>> import torch
    >>> import normscope as ns
    >>> two = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(2)))
    >>> result = ns.homogeneity(two, torch.randn(3, 4))
    >>> round(result.output.degree, 2), result.table["module"]
    (2.0, ['output'])
    """

    degrees: tuple[Degree, ...]
    warnings: tuple[str, ...] = ()

    @property
    def output(self) -> Degree:
        """The degree of the model's output."""
        return self.degrees[-1]

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings

    @property
    def table(self) -> Table:
        """One row per layer and one for the output, without the curves."""
        names = ["module", "layer", "degree", "low", "high", "euler", "residual", "exists"]
        return Table.from_rows(names, ([getattr(row, name) for name in names] for row in self.degrees))


def homogeneity(
    model: nn.Module,
    batches: Batches,
    *,
    curve: Curve = Curve(),
    blocks: str | None = None,
    progress: Progress = silent,
) -> Homogeneity:
    """The degree of each layer and of the output, by slope and by Euler's identity.

    Works on any module; one without repeated blocks is measured at its output only. The network is
    measured at its own norm; for the degree it would have at a larger norm, give a `curve` with `at=2**8`.
    `model`, `batches` and `blocks` are as in `saturation`; `curve` says at which scales the slope is
    measured; `progress` is called with (done, total, note).

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True).double()
    >>> result = ns.homogeneity(layer, torch.randn(4, 6, 8).double(), curve=ns.Curve(at=4096))
    >>> round(result.output.degree, 2), result.output.exists
    (1.0, True)
    """
    check_kind("curve", curve, Curve)
    check_progress(progress)
    kept = as_batches(batches)
    with scaled(model, curve.at):
        for scale in (*curve.scales, curve.reference):
            check_multiple(model, scale)
        return _homogeneity(model, kept, _block_lists(model, kept, blocks), curve, progress)


def _homogeneity(
    model: nn.Module, kept: list[Batch], lists: Sequence[BlockList], curve: Curve, progress: Progress
) -> Homogeneity:
    with evaluating(model):
        recorded = _record(model, kept, lists, curve, progress)
    euler = euler_degree(model, kept, lists)
    degrees = [_degree(edge, points, euler[edge], curve) for edge, points in recorded.items()]
    degrees.sort(key=lambda row: row.module == OUTPUT.module)
    broken = any(math.isnan(row.degree) for row in degrees)
    own = blame_for_nonfinite(model, kept, lists) if broken else None
    return Homogeneity(tuple(degrees), tuple(_warnings(degrees, own)))


def _block_lists(model: nn.Module, batches: list[Batch], pattern: str | None) -> list[BlockList]:
    """The model's block lists; empty for a model without repeated blocks, unless they are named."""
    try:
        return find_blocks(model, sample(batches), pattern=pattern)
    except ModelError:
        if pattern is not None:
            raise
        return []


def _record(
    model: nn.Module, batches: list[Batch], lists: Sequence[BlockList], curve: Curve, progress: Progress
) -> dict[Edge, dict[float, tuple[float, float]]]:
    """For each edge and scale: log of the norm over all real tokens, mean cosine with the reference."""
    with multiplied(model, curve.reference):
        limit = _states(model, batches, lists)
    found: dict[Edge, dict[float, tuple[float, float]]] = {}
    for done, scale in enumerate(curve.scales):
        with multiplied(model, scale):
            states = _states(model, batches, lists)
        for edge, rows in states.items():
            cosine = float((unit_rows(rows) * unit_rows(limit[edge])).sum(-1).mean())
            found.setdefault(edge, {})[scale] = (log_norm(rows), cosine)
        progress(done + 1, len(curve.scales), f"scaled by {scale:g}")
    return found


def _states(model: nn.Module, batches: list[Batch], lists: Sequence[BlockList]) -> dict[Edge, Tensor]:
    """The states of all real tokens at every edge and at the output."""
    found: dict[Edge, list[Tensor]] = {}
    for batch in batches:

        def keep(edge: Edge, states: Tensor, batch: Batch = batch) -> None:
            found.setdefault(edge, []).append(real_tokens(states, edge, batch))

        with visiting(model, lists, keep):
            keep(OUTPUT, output_states(batch.run(model)))
    return {edge: torch.cat(rows) for edge, rows in found.items()}


def output_states(output: Any) -> Tensor:
    """The model's output tensor, or the first of several."""
    states = first_states(output)
    if states is None:
        raise ModelError(
            f"the model returned {type(output).__name__} without a floating-point tensor of two axes or "
            "more, so its growth cannot be measured"
        )
    return states


def log_norm(rows: Tensor) -> float:
    """log‖rows‖, also for values whose squares would overflow."""
    largest = float(rows.abs().max())
    if largest == 0 or not math.isfinite(largest):
        return math.nan if largest else -math.inf
    return math.log(largest) + 0.5 * math.log(float((rows.double() / largest).square().sum()))


def _degree(
    edge: Edge, points: dict[float, tuple[float, float]], euler: tuple[float, float], curve: Curve
) -> Degree:
    logs = [points[scale][0] for scale in curve.scales]
    slope, half = slope_interval(np.log(curve.scales), np.array(logs))
    agree = abs(slope - euler[0]) <= curve.tolerance and euler[1] <= curve.tolerance
    return Degree(
        module=edge.module,
        layer=edge.layer,
        degree=slope,
        low=slope - half,
        high=slope + half,
        euler=euler[0],
        residual=euler[1],
        exists=bool(agree and half <= curve.tolerance),
        c=tuple(curve.scales),
        norm=tuple(math.exp(min(log, 709.0)) for log in logs),
        cosine=tuple(points[scale][1] for scale in curve.scales),
    )


def slope_interval(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The least-squares slope of y on x and the half width of its 95 % interval (Student's t)."""
    from scipy import stats

    if not np.isfinite(y).all():
        return math.nan, math.nan
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residual = y - y.mean() - slope * centred
    spread = math.sqrt(float(residual @ residual) / (len(x) - 2) / float(centred @ centred))
    return slope, float(stats.t.ppf(0.975, len(x) - 2)) * spread


def _warnings(degrees: Sequence[Degree], own: str | None) -> Iterator[str]:
    """`own` is what is wrong with the unscaled model, if anything is."""
    if own is not None:
        yield own
        return
    zero = [row.module for row in degrees if not any(row.norm)]
    if zero:
        yield f"the states of {some(zero)} are zero at every scale, so they have no degree"
    unknown = [row for row in degrees if math.isnan(row.degree) and row.module not in zero]
    if unknown:
        first = min((_overflow(row) for row in unknown), default=math.nan)
        yield (
            f"the slope of {some([row.module for row in unknown])} is unknown: states are zero or not finite "
            f"from c = {first:g} on; measure in float64 (--dtype float64), or at smaller scales"
        )
    without = [row.module for row in degrees if all(math.isnan(cosine) for cosine in row.cosine)]
    if without and len(without) > len([row for row in unknown if row.module in without]):
        yield (
            f"the cosines of {some(without)} with the limit are unknown: states at the reference scale are "
            "not finite; measure in float64 (--dtype float64), or with a smaller reference"
        )


def _overflow(row: Degree) -> float:
    """The first scale at which a state was zero or not finite."""
    return next((c for c, norm in zip(row.c, row.norm, strict=True) if not 0 < norm < math.inf), math.nan)
