"""How a network's output grows when its parameters do: the degree k of f(x; cθ) = c^k f(x; θ).

Two independent ways lead to k. The slope of log‖f(cθ)‖ on log c sees how the output
grows; Euler's identity ⟨θ, ∇f⟩ = k·f sees the same thing at one point, by autograd.
Where a degree exists they agree. The cosine of f(cθ) with its limit says whether the
direction stays, which a degree demands and a slope does not show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from normscope.errors import ModelError, UsageError
from normscope.network.limit.euler import euler_degree
from normscope.network.limit.scaling import check_scale, scaled
from normscope.network.running.batches import Batch, Batches, as_batches, sample
from normscope.network.running.block_lists import BlockList, find_blocks
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.hidden_states import (
    OUTPUT,
    Edge,
    first_states,
    real_tokens,
    unit_rows,
    visiting,
)
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular


@dataclass(frozen=True)
class Curve:
    """At which scales to look, and what counts as having a degree.

    `reference` is the scale that stands for the limit in the cosine curve. A degree
    `exists` when the slope is the same all along (its interval is no wider than
    ± `tolerance`), Euler's identity gives the same number, and what Euler's identity
    leaves over is below `tolerance` of ‖f‖.
    """

    scales: tuple[float, ...] = tuple(2.0**n for n in range(9))
    reference: float = 2.0**14
    tolerance: float = 0.05


@dataclass(frozen=True)
class Degree:
    """The degree of one layer's states, or of the `output`.

    `degree` with `low` and `high` (95 %) is the slope; `euler` the degree by autograd
    and `residual` = ‖Jθ − k·f‖/‖f‖ its failure to be an identity. `c`, `norm` and
    `cosine` (with the reference scale) are the scaling curve.
    """

    module: str
    layer: int
    degree: float
    low: float
    high: float
    euler: float
    residual: float
    exists: bool
    c: tuple[float, ...]
    norm: tuple[float, ...]
    cosine: tuple[float, ...]


@dataclass(frozen=True)
class Homogeneity(Tabular):
    """Degrees by layer; the last is the model's output."""

    degrees: tuple[Degree, ...]
    warnings: tuple[str, ...] = ()

    @property
    def output(self) -> Degree:
        """The degree of what the model returns."""
        return self.degrees[-1]

    @property
    def table(self) -> Table:
        """One row a layer, and one for the output; the curves are left out."""
        names = ["module", "layer", "degree", "low", "high", "euler", "residual", "exists"]
        return Table.from_rows(names, ([getattr(row, name) for name in names] for row in self.degrees))


def homogeneity(
    model: nn.Module, batches: Batches, curve: Curve = Curve(), progress: Progress = silent
) -> Homogeneity:
    """The degree of each layer and of the output, by slope and by Euler's identity.

    Works on any module: one without attention is measured at its output alone. The
    network is looked at as it is; to ask for the degree it will have at large norm,
    measure inside `with scaled(model, 2**8)`.
    """
    kept = as_batches(batches)
    if len(set(curve.scales)) < 3:
        raise UsageError(f"a slope needs at least three different scales, got {list(curve.scales)}")
    for scale in (*curve.scales, curve.reference):
        check_scale(model, scale)
    lists = _lists(model, kept)
    with evaluating(model):
        recorded = _record(model, kept, lists, curve, progress)
    euler = euler_degree(model, kept, lists)
    degrees = [_degree(edge, points, euler[edge], curve) for edge, points in recorded.items()]
    degrees.sort(key=lambda row: row.module == OUTPUT.module)
    return Homogeneity(tuple(degrees), tuple(_warnings(degrees)))


def _lists(model: nn.Module, batches: list[Batch]) -> list[BlockList]:
    try:
        return find_blocks(model, sample(batches))
    except ModelError:
        return []


def _record(
    model: nn.Module, batches: list[Batch], lists: Sequence[BlockList], curve: Curve, progress: Progress
) -> dict[Edge, dict[float, tuple[float, float]]]:
    """For each edge and scale: log of the norm over all real tokens, and mean cosine with the reference."""
    with scaled(model, curve.reference):
        limit = _states(model, batches, lists)
    found: dict[Edge, dict[float, tuple[float, float]]] = {}
    for done, scale in enumerate(curve.scales):
        with scaled(model, scale):
            states = _states(model, batches, lists)
        for edge, rows in states.items():
            cosine = float((unit_rows(rows) * unit_rows(limit[edge])).sum(-1).mean())
            found.setdefault(edge, {})[scale] = (log_norm(rows), cosine)
        progress(done + 1, len(curve.scales), f"scaled by {scale:g}")
    return found


def _states(model: nn.Module, batches: list[Batch], lists: Sequence[BlockList]) -> dict[Edge, Tensor]:
    """The states of all real tokens at every edge that depends on a block, and at the output."""
    found: dict[Edge, list[Tensor]] = {}
    for batch in batches:

        def keep(edge: Edge, states: Tensor, batch: Batch = batch) -> None:
            found.setdefault(edge, []).append(real_tokens(states, edge, batch))

        with visiting(model, lists, keep):
            keep(OUTPUT, output_states(batch.run(model)))
    return {edge: torch.cat(rows) for edge, rows in found.items()}


def output_states(output: Any) -> Tensor:
    """The tensor that a model returns, or the first of several."""
    states = first_states(output)
    if states is None:
        raise ModelError(
            f"the model returned {type(output).__name__} without a floating-point tensor of two axes or "
            "more, so its growth cannot be measured"
        )
    return states


def log_norm(rows: Tensor) -> float:
    """log‖rows‖, for values whose squares would overflow."""
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
        c=curve.scales,
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
    left = y - y.mean() - slope * centred
    spread = math.sqrt(float(left @ left) / (len(x) - 2) / float(centred @ centred))
    return slope, float(stats.t.ppf(0.975, len(x) - 2)) * spread


def _warnings(degrees: Sequence[Degree]) -> list[str]:
    if any(math.isnan(row.degree) for row in degrees):
        return [
            "some states of the scaled network are zero or not finite, so their slope is unknown: "
            "measure in float64 (--dtype float64), or at smaller scales"
        ]
    return []
