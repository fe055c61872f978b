"""Words that a model brings along: those of the formal language that a model of the lab was trained on."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from normscope.network.loading.models import StudyText
from normscope.network.places.model_places import CONFIG, ModelFiles
from normscope.network.running.batches import to_device
from normscope.network.running.inputs import Corpus

# Named, not imported: the lab imports this package.
_WORDS = {"normscope-lab": "normscope.lab.training.held_out:held_out_words"}


def own_words(files: ModelFiles, text: StudyText) -> Callable[[nn.Module], Corpus] | None:
    """What makes the corpus of a model without a tokenizer; None if it has one, or no words of its own.

    As many words as `text` has sentences.
    """
    folder = Path(files.config.name)
    if files.config.on_hub or text.tokenizer is not None or (folder / "tokenizer.json").exists():
        return None
    try:
        kind = json.loads((folder / CONFIG).read_text("utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    if kind not in _WORDS:
        return None
    module, _, name = _WORDS[kind].partition(":")
    found = getattr(importlib.import_module(module), name)(folder, len(text.sentences))
    return None if found is None else partial(_placed, found)


def _placed(corpus: Corpus, model: nn.Module) -> Corpus:
    device = next(model.parameters()).device
    batches = tuple(to_device(batch, device) for batch in corpus.batches)
    return replace(corpus, batches=batches, example=to_device(corpus.example, device))
