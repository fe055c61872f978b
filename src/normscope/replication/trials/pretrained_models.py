"""Trials on pretrained models: saturation by layer, beside random networks of the same shape.

A trained model is one model, so its interval is over groups of sentences: each seed has a group of its own,
and a random network of its own. The random network is also measured with dropout on, as the paper's code did.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.errors import UsageError
from normscope.network.loading.pretrained import load_model, load_tokenizer
from normscope.network.measuring.saturation import saturation
from normscope.network.running.baseline import random_like
from normscope.network.running.batches import Batch
from normscope.network.running.inputs import corpus, read_sentences
from normscope.network.running.scaling import scaled
from normscope.plugins import require
from normscope.replication.trials.trial_context import Document, TrialContext, kept_document
from normscope.words import joined

SCALE = 2.0**10


def study_pretrained(settings: Mapping[str, Any], context: TrialContext) -> list[Document]:
    """Return a document per model, network (trained, random, random with dropout), and group of sentences."""
    places = {**_installed(settings["packages"]), **{str(model): str(model) for model in context.models}}
    if not places:
        return []
    require("transformers", "hf", "measuring pretrained models")
    sentences = read_sentences(Path(context.text) if context.text else None, settings["sentences"])
    if len(sentences) < context.seeds:
        raise UsageError(
            f"the text has {len(sentences)} sentences (lines), and each of {context.seeds} seeds needs "
            "one: give a longer text or fewer seeds"
        )
    groups = [sentences[seed :: context.seeds] for seed in range(context.seeds)]
    found: list[Document] = []
    remarks = [f"measured: {joined(places)}; intervals are over groups of sentences, not over models"]
    total = len(places) * len(groups)
    for name, place in places.items():
        for seed, group in enumerate(groups):
            context.progress(len(found) // 3, total, name)
            path = context.folder / f"{_file_name(name)}-{seed}.json"
            kept = kept_document(path, partial(_study, name, place, group, seed))
            found += [{**document, "remarks": remarks} for document in kept["documents"]]
    context.progress(total, total, "")
    return found


def _installed(packages: Mapping[str, str]) -> dict[str, str]:
    """The folders of the models that installed packages carry: package → folder inside it."""
    found = {}
    for package, folder in packages.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            found[package] = str(Path(next(iter(spec.submodule_search_locations))) / folder)
    return found


def _study(name: str, place: str, sentences: Sequence[str], seed: int) -> dict[str, Any]:
    model, tokenizer = load_model(place), load_tokenizer(place)
    batches = corpus(sentences, tokenizer, model).batches
    rows = [_document(name, "trained", seed, _layers(model, batches))]
    random = random_like(model, seed=seed)
    rows.append(_document(name, "random", seed, _layers(random, batches)))
    torch.manual_seed(seed)
    with_dropout = [{"layer": i, "cosine": c, "converged": None} for i, c in _with_dropout(random, batches)]
    rows.append(_document(name, "random with dropout", seed, with_dropout))
    return {"documents": rows}


def _document(name: str, network: str, seed: int, layers: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [{"step": 0, "module": "", **row} for row in layers]
    return {
        "changes": {"model": name, "network": network, "seed": seed},
        "status": "done",
        "saturation": rows,
    }


def _layers(model: nn.Module, batches: Sequence[Batch]) -> list[dict[str, Any]]:
    found = saturation(model, batches).layers
    return [{"layer": row.layer, "cosine": row.cosine, "converged": row.converged} for row in found]


def _with_dropout(model: nn.Module, batches: Sequence[Batch]) -> list[tuple[int, float]]:
    """Mean cosine by layer of the states at the model's own norm and at a large one, with dropout in both."""
    model.train()
    sums: Tensor | None = None
    tokens = 0
    with torch.no_grad():
        for batch in batches:
            small = _states(model, batch)
            with scaled(model, SCALE):
                large = _states(model, batch)
            mask = batch.mask if batch.mask is not None else torch.ones(small[0].shape[:2], dtype=torch.bool)
            rows = [
                functional.cosine_similarity(a, b, dim=-1)[mask.bool()]
                for a, b in zip(small, large, strict=True)
            ]
            part = torch.stack([row.double().sum() for row in rows])
            sums = part if sums is None else sums + part
            tokens += int(mask.sum())
    model.eval()
    return [] if sums is None else list(enumerate((sums / tokens).tolist()))


def _states(model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
    states: tuple[Tensor, ...] = model(*batch.args, **batch.kwargs, output_hidden_states=True).hidden_states
    return states


def _file_name(name: str) -> str:
    """A file name; two models whose names differ in punctuation only have different ones."""
    plain = "".join(c if c.isalnum() else "_" for c in name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
