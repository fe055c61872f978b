"""Hugging Face models and those of the lab, one by one or as a series of checkpoints."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.names import Label, names_step, parse_label
from normscope.checkpoints.series.series import Entry, open_series, sort_entries
from normscope.checkpoints.storage.hub import SCHEME
from normscope.errors import ModelError, UsageError
from normscope.network.loading.models import Identity, SeriesOptions, StudiedModel, StudyText
from normscope.network.loading.output_heads import load_with_head, with_masked_tokens, without_head
from normscope.network.loading.own_words import own_words
from normscope.network.loading.pretrained import (
    check_model,
    load_checkpoint,
    load_pretrained,
    load_tokenizer,
)
from normscope.network.places.model_places import (
    ModelFiles,
    ModelPlace,
    config_digest,
    find_files,
    find_place,
    tokenizer_digest,
)
from normscope.network.places.placement import Placement
from normscope.network.places.source_paths import is_hub_id
from normscope.network.running.inputs import Corpus, corpus, ids_corpus
from normscope.words import some


def pretrained_models(
    sources: Sequence[str], text: StudyText, placement: Placement, options: SeriesOptions
) -> list[StudiedModel]:
    """The models of folders, files, globs, hf:// addresses or hub ids, sorted by stage and step."""
    on_hub = [source for source in sources if is_hub_id(source)]
    if on_hub and len(on_hub) < len(sources):
        raise UsageError(
            f"{on_hub[0]} is a hub id and cannot be mixed with other sources: write {SCHEME}{on_hub[0]}"
        )
    remarks: tuple[str, ...] = ()
    if on_hub:
        entries = _hub_entries(sources, options)
        files = [_hub_files(entry.source) for entry in entries]
    else:
        series = open_series([_checked(source) for source in sources], **options.arguments)
        entries, remarks = series.entries, series.remarks
        files = _series_files(entries, sources)
    models = [_model(entry, found, text, placement) for entry, found in zip(entries, files, strict=True)]
    return [replace(model, remarks=remarks) for model in models]


def _checked(source: str) -> str:
    """The source, if it can be a series: a URL, a path that exists, or a glob."""
    if "://" in source and not source.startswith(SCHEME):
        raise UsageError(
            f"transformers cannot load a model from {source}: download it, or load it into a model of your "
            f"own with: my_model.py:build {source}"
        )
    if source.endswith(".py"):
        raise UsageError(f"name the function that builds the model, too, as in {source}:build")
    if "://" not in source and not Path(source).exists() and not glob.has_magic(source):
        find_place(source)  # says what was expected
    return source


# -- hub ids ---------------------------------------------------------------------------


def _hub_entries(ids: Sequence[str], options: SeriesOptions) -> tuple[Entry, ...]:
    """Hub ids in order; the step is in the revision's name, as in OWNER/NAME@step1000, or 0."""
    if options.pattern is not None:
        raise UsageError(f"--pattern reads the names of checkpoints: write {SCHEME}{ids[0]}, or give --steps")
    if options.revisions is not None:
        raise UsageError(f"--revisions needs the address of a repository: write {SCHEME}{ids[0]}")
    labels = [_revision_label(find_place(name).revision or "") for name in ids]
    if options.steps is not None:
        if len(options.steps) != len(ids):
            raise UsageError(f"got {len(options.steps)} steps for {len(ids)} models: give one step per model")
        if negative := [step for step in options.steps if step < 0]:
            raise UsageError(f"steps must be integers ≥ 0; got {negative[0]}")
        labels = [replace(label, step=step) for label, step in zip(labels, options.steps, strict=True)]
    entries = [
        Entry(name, label.number or 0, label.stage, label.tokens, name, partial(_open_on_hub, name))
        for name, label in zip(ids, labels, strict=True)
    ]
    return sort_entries(entries)


def _revision_label(revision: str) -> Label:
    return parse_label(revision) if names_step(revision) else Label(0)


def _open_on_hub(name: str) -> Checkpoint:
    return open_series(f"{SCHEME}{name}", default_step=0).entries[0].open()


def _hub_files(name: str) -> ModelFiles:
    place = find_place(name)
    return ModelFiles(place, place, standard=True)


# -- checkpoints of a series -----------------------------------------------------------


def _series_files(entries: Sequence[Entry], sources: Sequence[str]) -> list[ModelFiles]:
    found = {entry.source: find_files(entry.source, sources) for entry in entries}
    without = [source for source, files in found.items() if files is None]
    if without:
        raise ModelError(
            f"{some(without)}: no config.json beside it, so transformers cannot build the model; add the "
            "model's config.json, or load the checkpoints into a model of your own with: my_model.py:build "
            f"{sources[0]}"
        )
    return [files for files in found.values() if files is not None]


def _model(entry: Entry, files: ModelFiles, text: StudyText, placement: Placement) -> StudiedModel:
    tokenizer = find_place(text.tokenizer) if text.tokenizer else files.tokenizer
    identify = partial(_identify, entry, files, tokenizer)
    load = partial(_load, entry, replace(files, tokenizer=tokenizer), text, placement)
    headed = partial(load, headed=True)
    return StudiedModel(entry.step, entry.stage, _name(entry, files), identify, load, load_headed=headed)


def _name(entry: Entry, files: ModelFiles) -> str:
    return str(files.config) if files.standard else entry.source


def _identify(entry: Entry, files: ModelFiles, tokenizer: ModelPlace) -> Identity:
    made_of = {"config": config_digest(files.config), "tokenizer": str(tokenizer)}
    made_of["vocabulary"] = tokenizer_digest(tokenizer)
    if is_hub_id(entry.source):
        return made_of | {"checkpoint": made_of["config"]}
    with closing(entry.open()) as checkpoint:
        return made_of | {"checkpoint": checkpoint.digest}


def _load(
    entry: Entry, files: ModelFiles, text: StudyText, placement: Placement, headed: bool = False
) -> tuple[nn.Module, Corpus]:
    if files.standard:
        check_model(files.config)
    if text.ids is None and (words := own_words(files, text)) is not None:
        model = load_pretrained(files.config, placement).model
        return model, words(model)
    tokenizer = _tokenizer(files, text)
    if files.standard:
        loaded = (load_with_head if headed else load_pretrained)(files.config, placement)
    else:
        with closing(entry.open()) as checkpoint:
            loaded = load_checkpoint(files.config, checkpoint, placement)
        loaded = without_head(loaded) if headed else loaded
    if text.ids is None:
        made = corpus(text.sentences, tokenizer, loaded.model, example=text.example)
    else:
        made = ids_corpus(text.ids, loaded.model, tokenizer)
    made = with_masked_tokens(made, tokenizer, loaded.model) if headed else made
    return loaded.model, replace(made, warnings=(*made.warnings, *loaded.warnings))


def _tokenizer(files: ModelFiles, text: StudyText) -> Any:
    """The tokenizer; None if token ids are given and there is none to name them."""
    try:
        return load_tokenizer(files.tokenizer)
    except ModelError:
        if text.ids is None or text.tokenizer is not None:
            raise
        return None
