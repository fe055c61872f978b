"""Saturation by layer: how close each layer already is to the network's limit of infinite norm.

sf(x; θ) = lim_{c→∞} f(x; cθ) is the saturated network. Its cosine with f(x; θ),
token by token, is 1 where the layer has saturated. The result says whether the
limit was reached, and at which scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from normscope.errors import UsageError
from normscope.network.running.baseline import random_like
from normscope.network.running.batches import Batch, Batches, as_batches
from normscope.network.running.passes import part_of
from normscope.network.settling.full_text import Limit, Measured, Request, measure, plain_warnings
from normscope.network.watching.hidden_states import Edge
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.rows import LayerMeasures
from normscope.table import Table, Tabular
from normscope.words import some


@dataclass(frozen=True)
class LayerSaturation(LayerMeasures):
    """One layer's saturation: the mean cosine over real tokens, and its standard deviation.

    `scale` is the c at which it was measured and `settles_at` the one from which it stays the same.
    `cosines` has the mean at each of the result's `scales`; `converged` is None if only one scale was given.

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
    scales: tuple[float, ...] = ()
    """The scales that `cosines` of the layers belong to."""

    @property
    def scale(self) -> float:
        """The scale c at which the layers were measured."""
        return self.layers[0].scale if self.layers else math.nan

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
    blocks: str | None = None,
    progress: Progress = silent,
) -> Saturation:
    """Mean cosine between the hidden states of f(x; θ) and f(x; cθ), layer by layer.

    `model` is any transformer in PyTorch, `batches` what it is called with: a tensor, a dict, a tuple or
    a `Batch`, or several of them. `limit` says how the limit is taken. `blocks` is a pattern on
    the paths of modules, such as "encoder.layers.*", for a model whose layers are not found; `progress` is
    called with (done, total, note). `baseline="random"` also measures a freshly initialised model of the same
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
        return _measure(model, kept, Request(limit, heads=False, blocks=blocks), progress)
    request = Request(limit, heads=False, blocks=blocks)
    trained = _measure(model, kept, request, part_of(progress, 0, 2))
    other = random_like(model, seed=0) if isinstance(baseline, str) else baseline
    same = replace(request, limit=Limit(limit.scales or (trained.scale,), limit.tolerance))
    measured = _measure(other, kept, same, part_of(progress, 1, 2, ", random baseline"))
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


def saturation_of(found: Measured) -> Saturation:
    """The saturation by layer from passes that are done."""
    layers = tuple(_layer(edge, found) for edge in found.states.sums)
    climb = found.plan.climb
    given = found.request.limit.scales
    scales = given or (climb.scales if climb else ())
    warnings = (*found.plan.remarks, *plain_warnings(found), *_warnings(layers, found))
    return Saturation(layers, warnings, scales)


def _measure(model: nn.Module, batches: list[Batch], request: Request, progress: Progress) -> Saturation:
    return saturation_of(measure(model, batches, request, progress))


def _layer(edge: Edge, found: Measured) -> LayerSaturation:
    sums, given, climb = found.states.sums[edge], found.request.limit.scales, found.plan.climb
    first = sums[found.scale]
    means = tuple(sums[scale].mean for scale in given) or (climb.cosines.get(edge, ()) if climb else ())
    converged = found.layer_converged(edge)
    return LayerSaturation(
        module=edge.module,
        layer=edge.layer,
        cosine=first.mean,
        deviation=first.deviation,
        tokens=first.tokens,
        scale=found.scale,
        converged=converged,
        settles_at=None if converged is False else found.layer_settles_at(edge),
        cosines=means,
    )


def _warnings(layers: Sequence[LayerSaturation], found: Measured) -> Iterator[str]:
    seen = {edge.path for edge in found.states.sums}
    if missing := [blocks.path for blocks in found.lists if blocks.path not in seen]:
        yield f"the hidden states of the blocks in {some(missing)} were not seen: their layers are missing"
    if not found.states.broken and any(math.isnan(layer.cosine) for layer in layers):
        first = next(layer for layer in layers if math.isnan(layer.cosine))
        wider = "" if found.plan.float64 else "; measure in float64 (--dtype float64)"
        yield (
            f"some hidden states of the scaled network are not finite, from {first.module} on: "
            f"{found.scale:g} is too large a scale for its numbers{wider}"
        )
    open_ = [layer.module for layer in layers if layer.converged is False]
    if open_:
        yield (
            f"{len(open_)} of {len(layers)} layers have not reached their limit, from {open_[0]} on: "
            f"{_why_open(layers, found)}"
        )


def _why_open(layers: Sequence[LayerSaturation], found: Measured) -> str:
    given, tolerance = found.request.limit.scales, found.request.limit.tolerance
    if given:
        listed = ", ".join(f"{scale:g}" for scale in given)
        return (
            f"their cosines at the scales {listed} differ by more than {tolerance:g}, or attention there is "
            "not saturated yet; leave out the scales to have them chosen"
        )
    climb = found.plan.climb
    highest = f"{climb.scales[-1]:g}" if climb else "?"
    return (
        f"up to the scale {highest} their cosines still change by more than {tolerance:g} while the scale "
        "grows a hundredfold, or attention before them is not saturated"
    )
