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
from typing import Literal

import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.running.baseline import random_like
from normscope.network.running.batches import Batch, Batches, as_batches, sample
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import PLAIN, part_of, run_passes
from normscope.network.running.scaling import power_of_two
from normscope.network.watching.block_lists import BlockList, find_blocks
from normscope.network.watching.hidden_states import Edge, real_tokens, unit_rows, visiting
from normscope.option_checks import check_kind, check_number, check_progress
from normscope.progress import Progress, silent
from normscope.rows import LayerMeasures
from normscope.table import Table, Tabular
from normscope.words import some


@dataclass(frozen=True)
class Limit:
    """How the limit c → ∞ is taken: at the first of `scales`, checked at the others.

    2^10 is the literature's 1000 made exact; 2^14 is large enough to distinguish a
    limit from an intermediate value. A layer has `converged` if the mean cosines of all
    scales differ by at most `tolerance`.

    >>> ns.Limit().scales
    (1024.0, 16384.0)
    >>> ns.Limit(scales=(2.0**12,), tolerance=0.02).scales
    (4096.0,)
    """

    scales: tuple[float, ...] = (2.0**10, 2.0**14)
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        check_kind("scales", self.scales, (tuple, list), "a tuple of powers of two")
        object.__setattr__(self, "scales", tuple(self.scales))
        check_number("tolerance", self.tolerance, 0)
        wrong = [scale for scale in self.scales if power_of_two(scale) <= 0]
        if not self.scales or wrong or len(set(self.scales)) < len(self.scales):
            raise UsageError(
                f"the scales of a limit must be different powers of two above 1, such as (1024, 16384); "
                f"got {self.scales}"
            )


@dataclass(frozen=True)
class LayerSaturation(LayerMeasures):
    """One layer's saturation: the mean cosine over real tokens, and its standard deviation.

    `cosines` has the mean at each scale; `converged` is None with a single scale.

    >>> layer = ns.LayerSaturation("h.0", 1, 0.98, 0.01, 500, 1024.0, converged=True, cosines=(0.98, 0.98))
    >>> layer.cosine, layer.baseline
    (0.98, None)
    """

    cosines: tuple[float, ...] = ()


@dataclass(frozen=True, repr=False)
class Saturation(Tabular):
    """The saturation of every layer, and warnings for the reader.

    >>> layer = ns.LayerSaturation("h.0", 1, 0.98, 0.01, 500, 1024.0, converged=True)
    >>> ns.Saturation((layer,)).with_baseline({"h.0": 0.2}).table["baseline"]
    [0.2]
    """

    layers: tuple[LayerSaturation, ...]
    warnings: tuple[str, ...] = ()

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings

    @property
    def table(self) -> Table:
        """One row per layer."""
        names = list(LayerMeasures.__dataclass_fields__)
        return Table.from_rows(names, ([getattr(layer, name) for name in names] for layer in self.layers))

    def with_baseline(self, cosines: Mapping[str, float]) -> Saturation:
        """A copy with another model's cosines, by module, as the baseline."""
        layers = tuple(replace(layer, baseline=cosines.get(layer.module)) for layer in self.layers)
        return replace(self, layers=layers)


def saturation(
    model: nn.Module,
    batches: Batches,
    *,
    baseline: Literal["random"] | nn.Module | None = None,
    limit: Limit = Limit(),
    progress: Progress = silent,
) -> Saturation:
    """Mean cosine between the hidden states of f(x; θ) and f(x; cθ), layer by layer.

    `model` is any transformer in PyTorch, `batches` what it is called with: a tensor, a dict, a tuple or
    a `Batch`, or several of them. `limit` says at which scales c the limit is taken; `progress` is called
    with (done, total, note). `baseline="random"` also measures a freshly initialised model of the same
    architecture (seed 0; pass `random_like(model, seed=…)` for another), because a cosine alone means
    little. Dropout is off in every network; padding never counts.

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=2)
    >>> result = ns.saturation(model, torch.randn(4, 6, 8))
    >>> [(row.module, round(row.cosine, 2)) for row in result.layers]
    [('layers.input', 1.0), ('layers.0', 0.05), ('layers.1', -0.08)]
    """
    check_kind("limit", limit, Limit)
    check_progress(progress)
    if baseline not in (None, "random") and not isinstance(baseline, nn.Module):
        raise UsageError(f"baseline must be 'random', a model, or None for no baseline; got {baseline!r}")
    kept = as_batches(batches)
    if baseline is None:
        return _measure(model, kept, limit, progress)
    trained = _measure(model, kept, limit, part_of(progress, 0, 2))
    other = random_like(model, seed=0) if isinstance(baseline, str) else baseline
    measured = _measure(other, kept, limit, part_of(progress, 1, 2, ", random baseline"))
    cosines = {layer.module: layer.cosine for layer in measured.layers}
    if not any(layer.module in cosines for layer in trained.layers):
        raise UsageError(
            "the baseline has no layer of the same name as the model's: its layers are "
            f"{some(list(cosines))}, the model's {some([layer.module for layer in trained.layers])}"
        )
    beside = trained.with_baseline(cosines)
    return replace(
        beside, warnings=trained.warnings + tuple(f"baseline: {text}" for text in measured.warnings)
    )


@dataclass
class _CosineSums:
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
    """Compares the states of scaled passes with those of the plain pass, which it stores until then."""

    model: nn.Module
    lists: Sequence[BlockList]
    limit: Limit
    plain: dict[tuple[int, Edge], Tensor] = field(default_factory=dict)
    sums: dict[Edge, dict[float, _CosineSums]] = field(default_factory=dict)

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Store the states of the plain pass; compare those of a scaled pass with them."""

        def store(edge: Edge, states: Tensor) -> None:
            self.plain[number, edge] = unit_rows(real_tokens(states, edge, batch))

        def compare(edge: Edge, states: Tensor) -> None:
            other = unit_rows(real_tokens(states, edge, batch))
            cosines = other.mul_(self.plain[number, edge]).sum(-1)
            self.sums.setdefault(edge, {}).setdefault(scale, _CosineSums()).add(cosines)

        return visiting(self.model, self.lists, store if scale == PLAIN else compare)

    def forget(self) -> None:
        """Release the plain states."""
        self.plain.clear()

    def result(self) -> Saturation:
        """The saturation over all batches so far."""
        layers = tuple(_layer(edge, sums, self.limit) for edge, sums in self.sums.items())
        return Saturation(layers, tuple(_warnings(layers, self.limit)))


def _measure(model: nn.Module, batches: list[Batch], limit: Limit, progress: Progress) -> Saturation:
    with evaluating(model):
        comparison = StateComparison(model, find_blocks(model, sample(batches)), limit)
        run_passes(model, batches, limit.scales, (comparison,), progress)
    return comparison.result()


def _layer(edge: Edge, sums: dict[float, _CosineSums], limit: Limit) -> LayerSaturation:
    scale = limit.scales[0]
    first = sums[scale]
    means = tuple(sums[scale].mean for scale in limit.scales)
    agree = max(means) - min(means) <= limit.tolerance  # False if any is NaN
    converged = agree if len(means) > 1 else None
    numbers = (first.mean, first.deviation, first.tokens, scale)
    return LayerSaturation(edge.module, edge.layer, *numbers, converged, cosines=means)


def _warnings(layers: Sequence[LayerSaturation], limit: Limit) -> Iterator[str]:
    if any(math.isnan(mean) for layer in layers for mean in layer.cosines):
        yield (
            "some hidden states of the scaled network are not finite: the range of the model's dtype is too "
            "small; measure in float64 (--dtype float64)"
        )
    open_ = [layer.module for layer in layers if layer.converged is False]
    if open_:
        yield (
            f"{len(open_)} of {len(layers)} layers have not converged (their cosines at scales "
            f"{', '.join(f'{scale:g}' for scale in limit.scales)} differ by more than {limit.tolerance:g}), "
            f"from {open_[0]} on: measure in float64 (--dtype float64) to see whether rounding is the cause"
        )
