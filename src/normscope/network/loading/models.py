"""What a study measures: models with their place in training, and the text to run them on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from normscope.network.running.inputs import Corpus
from normscope.network.running.token_ids import TokenRow, ids_digest

Identity = dict[str, str]
"""What a model is made of: another checkpoint, config, program or tokenizer gives another identity."""


@dataclass(frozen=True)
class StudiedModel:
    """One model to measure: its step and stage in training, its name, and how to load it.

    `remarks` are sentences about the series that the model belongs to. `load_headed` loads it with its
    output head, if `load` leaves that out, and with the text that predictions are measured on.
    """

    step: int
    stage: str
    label: str
    identify: Callable[[], Identity]
    load: Callable[[], tuple[nn.Module, Corpus]]
    remarks: tuple[str, ...] = ()
    load_headed: Callable[[], tuple[nn.Module, Corpus]] | None = None


@dataclass(frozen=True)
class StudyText:
    """The sentences to run a model on, and the folder or hub id of the tokenizer; the model's own if None.

    `example` is the sentence to show attention on; one of the sentences if None. With `ids`, the model is
    run on these tokens and not on sentences, and needs no tokenizer.
    """

    sentences: Sequence[str]
    tokenizer: str | None = None
    example: str | None = None
    ids: Sequence[TokenRow] | None = None

    @property
    def digest(self) -> str:
        """Another text, or other ids, have another digest."""
        if self.ids is not None:
            return f"ids {ids_digest(self.ids)}"
        return hashlib.sha256("\n".join(self.sentences).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SeriesOptions:
    """How steps are read from a series, with the meaning that they have in a scan.

    `steps` lists the steps in the order of the sources or of the names in a folder. `revisions` are
    patterns for the branches and tags of a Hugging Face repository. `pattern` is a regular expression that
    reads the names.
    """

    steps: Sequence[int] | None = None
    revisions: str | Sequence[str] | None = None
    pattern: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `open_series`; a single checkpoint without a step is step 0."""
        names = {"steps": self.steps, "revisions": self.revisions, "pattern": self.pattern}
        return names | {"default_step": 0}
