"""Formal languages as training data: at each position, the set of symbols that may come next.

A word w₁…wₙ is read as START w₁ … wₙ; the target after each prefix is the set of legal next
symbols, END included, as a row of zeros and ones. A position is correct if exactly the legal
symbols have a probability above ½; a word is correct if all its positions are (Bhattamishra
et al. 2020).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from normscope.errors import TrainingError, UsageError
from normscope.lab.config import DataConfig
from normscope.lab.data.dataset import Dataset, DataSizes, ScoreSums, TrainingBatch, build_once, epoch_order
from normscope.lab.data.fresh_words import draw_word, fresh_words, no_words, repeated_words
from normscope.lab.data.grammar import END, Language
from normscope.lab.data.languages import LANGUAGES, language
from normscope.lab.data.word_counts import has_no_words
from normscope.run_files.json_files import read_document

Symbols = npt.NDArray[np.uint8]
MARKER = 0  # START in the input, END in the target; symbol i of the alphabet is i + 1
PADDING = 255  # every target of a position after the end of the word
SPLITS = ("train", "valid", "longer")
REMARKS = "remarks.json"


@dataclass(frozen=True)
class EncodedWords:
    """Inputs: words × positions; targets: words × positions × symbols."""

    inputs: Symbols
    targets: Symbols

    def take(self, rows: npt.NDArray[np.int64]) -> TrainingBatch:
        """Return these words as tensors."""
        inputs = torch.from_numpy(self.inputs[rows].astype(np.int64))
        return TrainingBatch(inputs, torch.from_numpy(np.ascontiguousarray(self.targets[rows])))


@dataclass(frozen=True)
class TaskData(Dataset):
    """Words of one language: `train` up to a length; held out, `valid` of the same lengths and `longer`.

    `said` are the remarks about them.
    """

    train: EncodedWords
    held_out: dict[str, EncodedWords]
    said: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Whether held-out words were trained on."""
        return self.said

    @property
    def sizes(self) -> DataSizes:
        """A position is a prefix of a word; the vocabulary is the alphabet and the marker."""
        count, positions, symbols = self.train.targets.shape
        longest = max(int(words.inputs.shape[1]) for words in self.held_out.values())
        return DataSizes(symbols, positions, longest, count)

    def batch(self, number: int, size: int, seed: int) -> TrainingBatch:
        """Return the next words in the order of their epoch."""
        count = len(self.train.inputs)
        epochs = (divmod(index, count) for index in range(number * size, (number + 1) * size))
        return self.train.take(np.array([epoch_order(seed, epoch, count)[i] for epoch, i in epochs]))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy over positions (without padding) and symbols."""
        inside = targets[..., 0] != PADDING
        return functional.binary_cross_entropy_with_logits(logits[inside], targets[inside].to(logits.dtype))

    def evaluations(self, batches: int, size: int) -> dict[str, list[TrainingBatch]]:
        """Return the first words of each held-out split."""
        found = {}
        for name, words in self.held_out.items():
            rows = np.arange(min(batches * size, len(words.inputs)))
            found[name] = [words.take(part) for part in np.split(rows, range(size, len(rows), size))]
        return found

    def token_mask(self, batch: TrainingBatch) -> Tensor | None:
        """Return True inside the words."""
        return batch.targets[..., 0] != PADDING

    def score(self, logits: Tensor, targets: Tensor) -> ScoreSums:
        """Return correct positions and words, and the loss in nats per position and symbol."""
        inside = targets[..., 0] != PADDING
        right = ((logits > 0) == (targets == 1)).all(-1)
        nats = functional.binary_cross_entropy_with_logits(
            logits[inside].double(), targets[inside].double(), reduction="sum"
        )
        whole = (right | ~inside).all(-1)
        count = int(inside.sum())
        return ScoreSums(
            float(nats) / logits.shape[-1], int((right & inside).sum()), count, int(whole.sum()), len(whole)
        )


def open_task(config: DataConfig, folder: Path) -> TaskData:
    """Generate the words of a language into `folder`, unless an earlier run did, and map them into memory.

    The words of a language of the user's own are generated each time: its definition may have changed.
    """
    grammar = language(config.task or "")
    longest = config.test_length or 2 * config.length
    if grammar is not LANGUAGES.get(grammar.name):
        with tempfile.TemporaryDirectory() as part:
            _generate(grammar, config, longest, Path(part))
            return _read(Path(part), mapped=False)
    description = f"{grammar.name} {config.length} {longest} {config.words} {config.data_seed} fresh"
    name = f"{grammar.name}-{hashlib.sha256(description.encode()).hexdigest()[:12]}"
    return _read(build_once(folder / name, lambda part: _generate(grammar, config, longest, part)))


def _generate(grammar: Language, config: DataConfig, longest: int, part: Path) -> None:
    bounds = dict.fromkeys(SPLITS, (1, config.length)) | {"longer": (config.length + 1, longest)}
    for lengths in set(bounds.values()):
        if has_no_words(grammar, *lengths):
            raise UsageError(no_words(grammar, *lengths))
    trained: set[str] = set()
    for number, split in enumerate(SPLITS):
        rng = np.random.default_rng([config.data_seed, number])
        if split == "train":
            words = [draw_word(grammar, rng, *bounds[split]) for _ in range(config.words)]
            trained = set(words)
        else:
            words = fresh_words(grammar, rng, bounds[split], trained)
        if split == "valid":
            _write_remarks(part, repeated_words(grammar, words, trained, config.length))
        _save(part / split, encode(grammar, words, bounds[split][1]))


def _write_remarks(part: Path, remarks: list[str]) -> None:
    (part / REMARKS).write_text(json.dumps(remarks), encoding="utf-8")


def _read(place: Path, mapped: bool = True) -> TaskData:
    train, *others = (_load(place / split, mapped) for split in SPLITS)
    said = tuple(read_document(place / REMARKS, TrainingError, [str]))
    return TaskData(train, dict(zip(SPLITS[1:], others, strict=True)), said)


def encode(grammar: Language, words: list[str], longest: int) -> EncodedWords:
    """Encode the words, with the legal next symbols of every prefix."""
    symbols = END + grammar.alphabet
    number = {symbol: index for index, symbol in enumerate(symbols)}
    inputs = np.full((len(words), longest + 1), MARKER, np.uint8)
    targets = np.full((len(words), longest + 1, len(symbols)), PADDING, np.uint8)
    for row, word in enumerate(words):
        inputs[row, 1 : len(word) + 1] = [number[symbol] for symbol in word]
        targets[row, : len(word) + 1] = _legal(grammar, word, symbols)
    return EncodedWords(inputs, targets)


def _legal(grammar: Language, word: str, symbols: str) -> list[list[bool]]:
    state, rows = grammar.start, []
    for symbol in (*word, END):
        follow = grammar.follow(state)
        rows.append([one in follow for one in symbols])
        if symbol != END:
            state = grammar.move(state, symbol)
    return rows


def _save(path: Path, words: EncodedWords) -> None:
    np.save(f"{path}-inputs.npy", words.inputs)
    np.save(f"{path}-targets.npy", words.targets)


def _load(path: Path, mapped: bool = True) -> EncodedWords:
    mode: Literal["r"] | None = "r" if mapped else None
    inputs, targets = (np.load(f"{path}-{part}.npy", mmap_mode=mode) for part in ("inputs", "targets"))
    return EncodedWords(inputs, targets)
