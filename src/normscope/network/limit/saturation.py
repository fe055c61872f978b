"""Saturation by layer: how close each layer already is to the network's limit of infinite norm.

sf(x; θ) = lim_{c→∞} f(x; cθ) is the saturated network. Its cosine with f(x; θ),
token by token, is 1 where the layer has saturated. The limit is taken at two
scales, and the result says whether they agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.limit.scaling import power_of_two
from normscope.network.running.baseline import random_like
from normscope.network.running.batches import Batch, Batches, as_batches, sample
from normscope.network.running.block_lists import BlockList, find_blocks
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.hidden_states import Edge, real_tokens, unit_rows, visiting
from normscope.network.running.passes import PLAIN, go_through
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular


@dataclass(frozen=True)
class Limit:
    """How the limit c → ∞ is taken: at the first scale, checked at the others.

    2^10 is the literature's 1000 made exact; 2^14 is far enough away to tell a limit
    from a passing value. A layer has `converged` when the mean cosines of all scales
    lie within `tolerance` of each other.
    """

    scales: tuple[float, ...] = (2.0**10, 2.0**14)
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        wrong = [scale for scale in self.scales if not scale > 1 or power_of_two(scale) <= 0]
        if not self.scales or wrong:
            raise UsageError(
                f"the limit is taken at powers of two above 1, such as (1024, 16384), not {self.scales}"
            )


@dataclass(frozen=True)
class LayerSaturation:
    """One layer's saturation: mean cosine over real tokens, and its standard deviation among them.

    `cosines` holds the mean at each scale; `converged` is None with a single scale.
    """

    module: str
    layer: int
    cosine: float
    deviation: float
    tokens: int
    scale: float
    converged: bool | None
    cosines: tuple[float, ...]
    baseline: float | None = None


@dataclass(frozen=True)
class Saturation(Tabular):
    """The saturation of every layer, and sentences the reader should see."""

    layers: tuple[LayerSaturation, ...]
    warnings: tuple[str, ...] = ()

    @property
    def table(self) -> Table:
        """One row a layer."""
        names = ["module", "layer", "cosine", "deviation", "tokens", "scale", "converged", "baseline"]
        return Table.from_rows(names, ([getattr(layer, name) for name in names] for layer in self.layers))

    def with_baseline(self, cosines: Mapping[str, float]) -> Saturation:
        """The same with another model's cosines, by module, beside it."""
        layers = tuple(replace(layer, baseline=cosines.get(layer.module)) for layer in self.layers)
        return replace(self, layers=layers)


def saturation(
    model: nn.Module,
    batches: Batches,
    baseline: Literal["random"] | nn.Module | None = None,
    limit: Limit = Limit(),
    progress: Progress = silent,
) -> Saturation:
    """Mean cosine between the hidden states of f(x; θ) and f(x; cθ), layer by layer.

    `baseline="random"` measures a freshly initialised model of the same architecture
    beside it (seed 0; give `random_like(model, seed)` for another), because a cosine
    means little alone. Dropout is off in every network; padding never counts.
    """
    kept = as_batches(batches)
    if baseline is None:
        return _measure(model, kept, limit, progress)
    trained = _measure(model, kept, limit, _part(progress, 0))
    other = random_like(model, seed=0) if isinstance(baseline, str) else baseline
    measured = _measure(other, kept, limit, _part(progress, 1))
    beside = trained.with_baseline({layer.module: layer.cosine for layer in measured.layers})
    return replace(
        beside, warnings=trained.warnings + tuple(f"baseline: {text}" for text in measured.warnings)
    )


@dataclass
class _Sum:
    """Count, sum and sum of squares of cosines at one edge and one scale."""

    tokens: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, cosines: Tensor) -> None:
        values = cosines.to("cpu", torch.float64)
        self.tokens += values.numel()
        self.total += values.sum().item()
        self.squares += values.square().sum().item()

    @property
    def mean(self) -> float:
        return self.total / self.tokens if self.tokens else math.nan

    @property
    def deviation(self) -> float:
        return math.sqrt(max(0.0, self.squares / self.tokens - self.mean**2)) if self.tokens else math.nan


@dataclass
class StateComparison:
    """Compares states with those of the plain pass, which are held until the scaled ones have come by."""

    model: nn.Module
    lists: Sequence[BlockList]
    limit: Limit
    plain: dict[tuple[int, Edge], Tensor] = field(default_factory=dict)
    sums: dict[Edge, dict[float, _Sum]] = field(default_factory=dict)

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Hold the states of the plain pass; compare those of a scaled one."""

        def hold(edge: Edge, states: Tensor) -> None:
            self.plain[number, edge] = unit_rows(real_tokens(states, edge, batch))

        def compare(edge: Edge, states: Tensor) -> None:
            other = unit_rows(real_tokens(states, edge, batch))
            cosines = other.mul_(self.plain[number, edge]).sum(-1)
            self.sums.setdefault(edge, {}).setdefault(scale, _Sum()).add(cosines)

        return visiting(self.model, self.lists, hold if scale == PLAIN else compare)

    def forget(self) -> None:
        """Let the plain states go."""
        self.plain.clear()

    def result(self) -> Saturation:
        """What has been seen so far."""
        layers = tuple(_layer(edge, sums, self.limit) for edge, sums in self.sums.items())
        return Saturation(layers, tuple(_warnings(layers, self.limit)))


def _measure(model: nn.Module, batches: list[Batch], limit: Limit, progress: Progress) -> Saturation:
    with evaluating(model):
        comparison = StateComparison(model, find_blocks(model, sample(batches)), limit)
        go_through(model, batches, limit.scales, (comparison,), progress)
    return comparison.result()


def _layer(edge: Edge, sums: dict[float, _Sum], limit: Limit) -> LayerSaturation:
    first = sums[limit.scales[0]]
    means = tuple(sums[scale].mean for scale in limit.scales)
    agree = max(means) - min(means) <= limit.tolerance  # False when any is NaN
    return LayerSaturation(
        module=edge.module,
        layer=edge.layer,
        cosine=first.mean,
        deviation=first.deviation,
        tokens=first.tokens,
        scale=limit.scales[0],
        converged=agree if len(means) > 1 else None,
        cosines=means,
    )


def _warnings(layers: Sequence[LayerSaturation], limit: Limit) -> Iterator[str]:
    if any(math.isnan(mean) for layer in layers for mean in layer.cosines):
        yield (
            "some hidden states of the scaled network are not finite: the model's dtype is too narrow; "
            "measure in float64 (--dtype float64)"
        )
    open_ = [layer.module for layer in layers if layer.converged is False]
    if open_:
        yield (
            f"{len(open_)} of {len(layers)} layers have not converged (their cosines at scales "
            f"{', '.join(f'{scale:g}' for scale in limit.scales)} differ by more than {limit.tolerance:g}), "
            f"from {open_[0]} on: measure in float64 (--dtype float64) to see whether rounding is the reason"
        )


def _part(progress: Progress, half: int) -> Progress:
    def shown(done: float, total: float, note: str) -> Any:
        progress(done + half * total, 2 * total, f"{note}, random baseline" if half else note)

    return shown
