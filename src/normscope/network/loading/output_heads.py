"""Models with their output heads: saturation is measured without them, predictions need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from normscope.network.loading.pretrained import (
    LoadedModel,
    load_class,
    load_pretrained,
    read_architectures,
)
from normscope.network.places.model_places import ModelPlace
from normscope.network.places.placement import Placement
from normscope.network.running.batches import Batch
from normscope.network.running.inputs import Corpus

MASKED_SHARE = 0.15
"""The share of tokens that are masked for a masked language model, as in BERT."""


def load_with_head(place: ModelPlace, placement: Placement) -> LoadedModel:
    """Load the class that the config names, with its head; without one, the model as it is, and a warning.

    A head that the files lack would have random values, so the model is loaded without it then.
    """
    names = [name.replace("ForPreTraining", "ForMaskedLM") for name in read_architectures(place)]
    loaded = load_class(names[0], place, placement) if names else None
    if loaded is not None and not loaded.warnings:
        return loaded
    plain = load_pretrained(place, placement)
    if names == ["Transformer"] or (loaded is not None and type(loaded.model) is type(plain.model)):
        return plain  # the lab's models have their head, and these have none
    missing = f"transformers has no {names[0]}" if names else "the config names no architectures"
    return without_head(plain, loaded.warnings[0] if loaded is not None else missing)


def without_head(
    loaded: LoadedModel, reason: str = "weights of this format are loaded without it"
) -> LoadedModel:
    """The model, with a warning that says why its predictions cannot be measured."""
    return replace(loaded, warnings=(*loaded.warnings, f"measured without an output head: {reason}"))


def with_masked_tokens(corpus: Corpus, tokenizer: Any, model: nn.Module) -> Corpus:
    """The corpus of a masked language model with 15 % of its tokens masked, and labels there.

    The same tokens every time; special tokens are not masked, and every sequence has one token that is.
    """
    mask = getattr(tokenizer, "mask_token_id", None)
    if not type(model).__name__.endswith("ForMaskedLM") or mask is None:
        return corpus
    special = list(getattr(tokenizer, "all_special_ids", None) or [])
    random = torch.Generator().manual_seed(0)
    return replace(corpus, batches=tuple(_masked(batch, mask, special, random) for batch in corpus.batches))


def _masked(batch: Batch, mask: int, special: Sequence[int], random: torch.Generator) -> Batch:
    ids = batch.kwargs["input_ids"]
    plain = ~torch.isin(ids, torch.tensor(special, device=ids.device, dtype=ids.dtype))
    plain = plain if batch.mask is None else plain & batch.mask.to(ids.device)
    chance = torch.rand(ids.shape, generator=random).to(ids.device).masked_fill(~plain, 2.0)
    lowest = chance <= chance.amin(-1, keepdim=True)
    chosen = plain & ((chance < MASKED_SHARE) | lowest)
    kwargs = {**batch.kwargs, "input_ids": ids.masked_fill(chosen, mask)}
    return Batch(batch.args, kwargs, batch.mask, batch.decoder_mask, ids.masked_fill(~chosen, -100))
