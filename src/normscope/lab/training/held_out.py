"""Held-out data as batches with labels, to run a network on as the lab evaluates it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from normscope.errors import CorruptCheckpoint, UsageError
from normscope.lab.config import DataConfig, TrainConfig, override
from normscope.lab.data.dataset import Dataset, TrainingBatch
from normscope.lab.data.languages import LANGUAGES, language
from normscope.lab.data.tasks import PADDING, TaskData, open_task
from normscope.network.predicting.predictions import IGNORED, TaskName
from normscope.network.running.batches import Batch
from normscope.network.running.inputs import BATCH_TOKENS, EXAMPLE_TOKENS, Corpus


def task_name(data: Dataset) -> TaskName:
    """What the lab's targets are: sets of symbols, or the next token, which is aligned with its logits."""
    return "sets" if isinstance(data, TaskData) else "tokens"


def has_labels(data: Dataset, batch: TrainingBatch) -> bool:
    """Whether the targets are sets of symbols or next tokens, as measurements of predictions need them."""
    whole = not batch.targets.is_floating_point() and batch.targets.shape == batch.inputs.shape
    return isinstance(data, TaskData) or whole


def held_out_batches(data: Dataset, kept: Sequence[TrainingBatch], device: torch.device) -> list[Batch]:
    """Held-out batches of the lab as batches of a network, with labels."""
    found = []
    for batch in kept:
        tokens, labels = data.token_mask(batch), batch.targets.long()
        if isinstance(data, TaskData):
            labels = labels.masked_fill(labels == PADDING, IGNORED)
        mask = None if tokens is None else tokens.to(device)
        found.append(Batch((batch.inputs.to(device),), mask=mask, labels=labels.to(device)))
    return found


def held_out_words(folder: Path, count: int) -> Corpus | None:
    """The first held-out words of the language that a checkpoint of a run was trained on; None for text.

    The config of the run says which language. Its words depend on nothing else, so they are generated
    again if the run's folder does not have them.
    """
    out = folder.parent.parent
    config = _data_config(out)
    if config is None:
        return None
    if (out / "data").is_dir():
        return _words(config, out / "data", count)
    with tempfile.TemporaryDirectory() as part:
        return _words(config, Path(part), count)


def _data_config(out: Path) -> DataConfig | None:
    try:
        document = json.loads((out / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("task") not in LANGUAGES:
        return None  # a text, or data of the user's own, whose program a file must not name
    try:
        return override(TrainConfig(), document).data
    except (UsageError, TypeError, ValueError, OverflowError) as error:
        raise CorruptCheckpoint(f"{out / 'config.json'} is not the config of a run: {error}") from None


def _words(config: DataConfig, folder: Path, count: int) -> Corpus:
    data = open_task(config, folder)
    size = max(1, BATCH_TOKENS // data.sizes.positions)
    kept = data.evaluations(-(-count // size), size)["valid"]
    batches = _first(held_out_batches(data, kept, torch.device("cpu")), count)
    symbols = ["START", *language(config.task or "").alphabet]
    example = _example(batches[0])
    return Corpus(tuple(batches), example, tuple(symbols[token] for token in example.args[0][0].tolist()))


def _example(batch: Batch) -> Batch:
    """The longest word that fits into a picture, without padding."""
    assert batch.mask is not None
    lengths = batch.mask.sum(-1)
    fitting = lengths.masked_fill(lengths > EXAMPLE_TOKENS, 0)
    row = int(fitting.argmax())
    ids = batch.args[0][row : row + 1, : min(int(lengths[row]), EXAMPLE_TOKENS)]
    return Batch((ids,), mask=torch.ones_like(ids, dtype=torch.bool))


def _first(batches: Sequence[Batch], count: int) -> list[Batch]:
    """The first `count` rows of the batches."""
    found: list[Batch] = []
    for batch in batches:
        left = count - sum(len(kept.args[0]) for kept in found)
        if left <= 0:
            break
        mask = None if batch.mask is None else batch.mask[:left]
        labels = None if batch.labels is None else batch.labels[:left]
        found.append(Batch((batch.args[0][:left],), mask=mask, labels=labels))
    return found
