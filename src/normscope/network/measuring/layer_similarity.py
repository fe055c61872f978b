"""How similar the representations of two models are, layer by layer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from normscope.errors import UsageError
from normscope.network.measuring.similarity import (
    FULL_RANK,
    TOKENS_PER_DIMENSION,
    CentredStates,
    linear_cka,
    pwcca,
)
from normscope.network.running.batches import Batches, as_batches
from normscope.network.running.passes import part_of
from normscope.network.watching.token_sample import LayerStates, sample_states
from normscope.option_checks import check_integer, check_progress
from normscope.progress import Progress, silent
from normscope.rows import SimilarityMeasures
from normscope.table import Table, Tabular
from normscope.words import some

SAMPLED_TOKENS = 4096
"""Tokens whose states are compared, at most: 10 for each of 400 dimensions, and bounded memory."""

_FAULTS = {
    "empty": "there are no tokens",
    "not finite": "states are NaN or infinite",
    "constant": "all tokens have the same state",
}
_TOO_FAR = 1.05  # a debiased CKA beyond this is an estimate from too few tokens


@dataclass(frozen=True)
class LayerSimilarity(SimilarityMeasures):
    """How similar the states of one layer are in two models.

    >>> layer = ns.LayerSimilarity("h.0", 1, cka=0.98, cka_debiased=0.97, pwcca=None, tokens=500)
    >>> layer.cka_debiased
    0.97
    """


@dataclass(frozen=True, repr=False)
class Similarity(Tabular):
    """The similarity of every layer of two models, and warnings for the reader.

    >>> ns.Similarity((ns.LayerSimilarity("h.0", 1, 0.98, 0.97, None, 500),)).table["cka"]
    [0.98]
    """

    layers: tuple[LayerSimilarity, ...]
    warnings: tuple[str, ...] = ()

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings

    @property
    def table(self) -> Table:
        """One row per layer."""
        names = list(SimilarityMeasures.__dataclass_fields__)
        return Table.from_rows(names, ([getattr(layer, name) for name in names] for layer in self.layers))


def layer_similarity(
    model_a: nn.Module,
    model_b: nn.Module,
    batches: Batches,
    *,
    tokens: int = SAMPLED_TOKENS,
    progress: Progress = silent,
) -> Similarity:
    """Linear CKA and PWCCA between the hidden states of two models on the same inputs, layer by layer.

    `model_a` and `model_b` are two checkpoints of one training, a model before and after fine-tuning, or
    any two models: layers are matched by the paths of their modules, and widths may differ. `batches` are
    as in `saturation`; both models are called with them. At most `tokens` real tokens are compared, evenly
    spread over the batches; `progress` is called with (done, total, note). PWCCA has its weights from
    `model_a`. A measure is None where it would mean nothing: docs/saturation.md says when.

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> before = torch.nn.TransformerEncoder(layer, num_layers=2)
    >>> after = ns.random_like(before, seed=1)
    >>> result = ns.layer_similarity(before, after, torch.randn(4, 60, 8))
    >>> [(row.module, round(row.cka, 2), row.tokens) for row in result.layers]
    [('layers.input', 1.0, 240), ('layers.0', 0.93, 240), ('layers.1', 0.82, 240)]
    """
    most = check_integer("tokens", tokens, 1)
    check_progress(progress)
    kept = as_batches(batches)
    a = sample_states(model_a, kept, most, part_of(progress, 0, 2))
    b = sample_states(model_b, kept, most, part_of(progress, 1, 2))
    found = compare_states(a, b, ("the first model", "the second model"))
    if not found.layers:
        raise UsageError(
            "the models have no layer in common: the first has "
            f"{some(list(a))}, the second {some(list(b))}; their states must be of the same tokens"
        )
    return Similarity(found.layers, (*found.warnings, *missing_pwcca(found.layers)))


def compare_states(a: LayerStates, b: LayerStates, names: tuple[str, str]) -> Similarity:
    """The similarity of the layers that both have; `names` are what warnings call the two models."""
    pairs = _matched(a, b)
    same = {x: y for x, y in pairs.items() if a[x].shapes == b[y].shapes}
    layers: list[LayerSimilarity] = []
    faults: dict[tuple[str, str], list[str]] = {}
    for x, y in same.items():  # one layer in float64 at a time
        ours, theirs = CentredStates.of(a[x].states), CentredStates.of(b[y].states)
        layers.append(_layer(x, a[x].layer, ours, theirs))
        for name, states in zip(names, (ours, theirs), strict=True):
            if states.fault:
                faults.setdefault((name, states.fault), []).append(x)
    warnings = [
        *_alone(names[0], set(a) - set(pairs)),
        *_alone(names[1], set(b) - set(pairs.values())),
        *_layouts([x for x in pairs if x not in same], names),
        *(
            f"no similarity for {len(modules)} layers: {_FAULTS[fault]} in {name}, from {modules[0]} on"
            for (name, fault), modules in faults.items()
        ),
    ]
    return Similarity(tuple(layers), tuple(warnings))


def missing_pwcca(layers: Iterable[SimilarityMeasures]) -> list[str]:
    """A warning if PWCCA is missing where the states could be compared."""
    known = [row for row in layers if row.layer and row.cka is not None]
    missing = [row for row in known if row.pwcca is None]
    if not missing:
        return []
    places = len({row.module for row in missing})
    return [
        f"PWCCA is missing for {places} of {len({row.module for row in known})} layers, where it would be "
        f"high for any two networks: it needs {TOKENS_PER_DIMENSION} different states for each dimension "
        f"(there are at most {max(row.tokens for row in missing)} tokens; give more text), and states that "
        f"use {FULL_RANK:.0%} of their dimensions; read the debiased CKA instead"
    ]


def _matched(a: Iterable[str], b: Iterable[str]) -> dict[str, str]:
    """Modules of equal path; if there are none, those whose paths differ by what stands before them.

    A model with a task head keeps its blocks one level deeper: bert.encoder.layer.0, encoder.layer.0. A
    module that could be matched with several is left out.
    """
    first, second = list(a), list(b)
    equal = {x: x for x in first if x in set(second)}
    if equal:
        return equal
    pairs = [(x, y) for x in first for y in second if x.endswith(f".{y}") or y.endswith(f".{x}")]
    left, right = (Counter(side) for side in zip(*pairs, strict=True)) if pairs else (Counter(), Counter())
    return {x: y for x, y in pairs if left[x] == right[y] == 1}


def _layer(module: str, layer: int, x: CentredStates, y: CentredStates) -> LayerSimilarity:
    debiased = linear_cka(x, y, debiased=True)
    weighted = math.nan
    if layer and x.enough_for_pwcca and y.enough_for_pwcca:
        weighted = pwcca(x, y)
    values = (linear_cka(x, y), debiased if abs(debiased) <= _TOO_FAR else math.nan, weighted)
    cka, unbiased, correlation = (None if math.isnan(value) else value for value in values)
    return LayerSimilarity(module, layer, cka, unbiased, correlation, len(x.rows))


def _alone(name: str, modules: Iterable[str]) -> Iterator[str]:
    alone = sorted(modules)
    if alone:
        yield f"{len(alone)} layers are left out of the similarity: only {name} has {some(alone)}"


def _layouts(modules: Sequence[str], names: tuple[str, str]) -> Iterator[str]:
    if modules:
        yield (
            f"{len(modules)} layers are left out of the similarity: {names[0]} and {names[1]} have states of "
            f"different shapes there, so their tokens cannot be matched: {some(modules)}"
        )
