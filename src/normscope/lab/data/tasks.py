"""Formal languages as training data: at each position, the set of symbols that may come next.

A word w₁…wₙ is read as START w₁ … wₙ; the target after each prefix is the set of legal next
symbols, END included, as a row of zeros and ones. A position is right when the set of
symbols with probability above ½ is exactly the legal one; a word is right when all its
positions are (Bhattamishra et al. 2020).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from normscope.lab.config import DataConfig
from normscope.lab.data.dataset import Data, Evaluation, TrainingBatch, made_once, order_of
from normscope.lab.data.languages import END, Language, language

Array = npt.NDArray[np.uint8]
MARKER = 0  # START in the input, END in the target; symbol i of the alphabet is i + 1
PADDING = 255  # in every target of a position behind the word
HELD_OUT = 1000
SPLITS = ("train", "valid", "longer")


@dataclass(frozen=True)
class Words:
    """Encoded words: inputs, words × positions; targets, words × positions × symbols."""

    inputs: Array
    targets: Array

    def take(self, rows: npt.NDArray[np.int64]) -> TrainingBatch:
        """These words as tensors."""
        inputs = torch.from_numpy(self.inputs[rows].astype(np.int64))
        return TrainingBatch(inputs, torch.from_numpy(np.ascontiguousarray(self.targets[rows])))


@dataclass(frozen=True)
class TaskData(Data):
    """Words of one language: `train` up to a length, `valid` fresh ones as long, `longer` longer ones."""

    train: Words
    held_out: dict[str, Words]

    @property
    def vocab_size(self) -> int:
        """The alphabet and the marker."""
        return int(self.train.targets.shape[2])

    @property
    def positions(self) -> int:
        """Prefixes of the longest word trained on."""
        return int(self.train.inputs.shape[1])

    @property
    def max_length(self) -> int:
        """Prefixes of the longest word of any split."""
        return max(int(words.inputs.shape[1]) for words in self.held_out.values())

    @property
    def sequences(self) -> int:
        """Words to train on."""
        return len(self.train.inputs)

    def batch(self, number: int, size: int, seed: int) -> TrainingBatch:
        """The next words in the order of their epoch."""
        epochs = (divmod(index, self.sequences) for index in range(number * size, (number + 1) * size))
        return self.train.take(np.array([order_of(seed, epoch, self.sequences)[i] for epoch, i in epochs]))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean binary cross-entropy over the positions of words and over symbols."""
        inside = targets[..., 0] != PADDING
        return functional.binary_cross_entropy_with_logits(logits[inside], targets[inside].to(logits.dtype))

    def evaluations(self, batches: int, size: int) -> dict[str, list[TrainingBatch]]:
        """The first words of each held-out split."""
        found = {}
        for name, words in self.held_out.items():
            rows = np.arange(min(batches * size, len(words.inputs)))
            found[name] = [words.take(part) for part in np.split(rows, range(size, len(rows), size))]
        return found

    def real(self, batch: TrainingBatch) -> Tensor | None:
        """The positions of the words."""
        return batch.targets[..., 0] != PADDING

    def score(self, logits: Tensor, targets: Tensor) -> Evaluation:
        """Right sets and right words; the loss in nats per position and symbol."""
        inside = targets[..., 0] != PADDING
        right = ((logits > 0) == (targets == 1)).all(-1)
        nats = functional.binary_cross_entropy_with_logits(
            logits[inside].double(), targets[inside].double(), reduction="sum"
        )
        whole = (right | ~inside).all(-1)
        count = int(inside.sum())
        return Evaluation(
            float(nats) / logits.shape[-1], int((right & inside).sum()), count, int(whole.sum()), len(whole)
        )


def prepare(config: DataConfig, folder: Path) -> TaskData:
    """Draw and encode the words of the language into `folder`, or find them there, and map them."""
    spoken = language(config.task or "")
    longest = config.test_length or 2 * config.length
    asked = f"{spoken.name} {config.length} {longest} {config.words} {config.data_seed}"
    name = f"{spoken.name}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"

    def build(part: Path) -> None:
        bounds = {
            "train": (1, config.length),
            "valid": (1, config.length),
            "longer": (config.length + 1, longest),
        }
        for number, split in enumerate(SPLITS):
            count = config.words if split == "train" else HELD_OUT
            rng = np.random.default_rng([config.data_seed, number])
            words = [spoken.sample(rng, *bounds[split]) for _ in range(count)]
            _save(part / split, encode(spoken, words, bounds[split][1]))

    place = made_once(folder / name, build)
    train, *others = (_load(place / split) for split in SPLITS)
    return TaskData(train, dict(zip(SPLITS[1:], others, strict=True)))


def encode(spoken: Language, words: list[str], longest: int) -> Words:
    """Numbers and legal sets of every prefix of every word."""
    symbols = END + spoken.alphabet
    number = {symbol: index for index, symbol in enumerate(symbols)}
    inputs = np.zeros((len(words), longest + 1), np.uint8)
    targets = np.full((len(words), longest + 1, len(symbols)), PADDING, np.uint8)
    for row, word in enumerate(words):
        inputs[row, 1 : len(word) + 1] = [number[symbol] for symbol in word]
        targets[row, : len(word) + 1] = _legal(spoken, word, symbols)
    return Words(inputs, targets)


def _legal(spoken: Language, word: str, symbols: str) -> list[list[bool]]:
    state, rows = spoken.start, []
    for symbol in (*word, END):
        follow = spoken.follow(state)
        rows.append([one in follow for one in symbols])
        if symbol != END:
            state = spoken.move(state, symbol)
    return rows


def _save(path: Path, words: Words) -> None:
    np.save(f"{path}-inputs.npy", words.inputs)
    np.save(f"{path}-targets.npy", words.targets)


def _load(path: Path) -> Words:
    inputs, targets = (np.load(f"{path}-{part}.npy", mmap_mode="r") for part in ("inputs", "targets"))
    return Words(inputs, targets)
