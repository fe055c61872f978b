"""Text as training data: tokenised once, into files that all processes map into memory."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from normscope.errors import TrainingError, UsageError
from normscope.lab.config import BUILT_IN_TEXT, DataConfig
from normscope.lab.data.dataset import Dataset, DataSizes, ScoreSums, TrainingBatch, build_once, epoch_order
from normscope.lab.data.tokenizers import TOKENIZERS, TokenIds, Tokenizer, load_tokenizer


@dataclass(frozen=True)
class TextData(Dataset):
    """Sequences cut from one long array of tokens.

    Each epoch cuts the array at its own offset and reads the pieces in its own order. Seed and
    batch number alone decide which pieces a batch has, so a resumed run needs no saved position.
    """

    train: TokenIds
    valid: TokenIds
    length: int
    tokenizer: Tokenizer
    files: tuple[Path, ...] = ()

    @property
    def sizes(self) -> DataSizes:
        """Every sequence predicts `length` tokens."""
        return DataSizes(self.tokenizer.vocab_size, self.length, self.length, self.sequences)

    @property
    def sequences(self) -> int:
        """Pieces per epoch, the same for every offset."""
        return (len(self.train) - 1) // self.length - (len(self.train) - 1 >= 2 * self.length)

    def batch(self, number: int, size: int, seed: int) -> TrainingBatch:
        """Return batch `number` of the endless sequence of batches of this size."""
        wanted = range(number * size, (number + 1) * size)
        starts = [self._start(index, seed) for index in wanted]
        return self._cut(self.train, np.array(starts))

    def _start(self, index: int, seed: int) -> int:
        epoch, place = divmod(index, self.sequences)
        slack = len(self.train) - 1 - self.sequences * self.length
        offset = int(epoch_order(seed, epoch, min(slack, self.length - 1) + 1)[0])
        return offset + int(epoch_order(seed, epoch, self.sequences)[place]) * self.length

    def _cut(self, tokens: TokenIds, starts: np.ndarray) -> TrainingBatch:
        rows = tokens[starts[:, None] + np.arange(self.length + 1)].astype(np.int64)
        pieces = torch.from_numpy(rows)
        return TrainingBatch(pieces[:, :-1], pieces[:, 1:])

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy per token, in nats."""
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluations(self, batches: int, size: int) -> dict[str, list[TrainingBatch]]:
        """Return batches spread evenly over the held-out text."""
        count = min(batches * size, (len(self.valid) - 1) // self.length)
        starts = np.linspace(0, len(self.valid) - 1 - self.length, count).astype(np.int64)
        return {"valid": [self._cut(self.valid, part) for part in np.split(starts, range(size, count, size))]}

    def score(self, logits: Tensor, targets: Tensor) -> ScoreSums:
        """Return loss and correct predictions, summed over tokens."""
        nats = functional.cross_entropy(logits.flatten(0, 1).double(), targets.flatten(), reduction="sum")
        right = (logits.argmax(-1) == targets).sum()
        return ScoreSums(float(nats), int(right), targets.numel())


def built_in_text() -> str:
    """Return English prose that comes with every Python: the topics of its help system."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def open_text(config: DataConfig, folder: Path) -> TextData:
    """Tokenise the text into `folder`, unless an earlier run did, and map it into memory."""
    place = build_once(folder / _key(config), lambda part: _tokenise(config, part))
    tokenizer = load_tokenizer(config.tokenizer, place / "tokenizer.json")
    files = (place / "train.npy", place / "valid.npy")
    train, valid = (np.load(path, mmap_mode="r") for path in files)
    for name, tokens in (("text", train), ("held-out text", valid)):
        if len(tokens) <= config.length:
            raise TrainingError(
                f"the {name} has {len(tokens)} tokens, but one sequence of length {config.length} needs "
                f"{config.length + 1}: give a longer text or a smaller length"
            )
    return TextData(train, valid, config.length, tokenizer, files)


def _key(config: DataConfig) -> str:
    """Name for this text and tokenizer, from the size and time of the files."""
    parts: list[object] = [config.tokenizer, config.vocabulary if config.tokenizer == "bpe" else 0]
    for source in (config.text, config.valid):
        if source is None or source == BUILT_IN_TEXT:
            parts.append(source)
        else:
            found = _stat(source)
            parts += [str(Path(source).resolve()), found.st_size, found.st_mtime_ns]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _stat(source: str) -> os.stat_result:
    try:
        return Path(source).stat()
    except OSError as error:
        raise UsageError(f"cannot read the text {source}: {error.strerror}") from None


def _read(source: str) -> str:
    if source == BUILT_IN_TEXT:
        return built_in_text()
    try:
        return Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start}): convert it first") from None
    except OSError as error:
        raise UsageError(f"cannot read the text {source}: {error.strerror}") from None


def _tokenise(config: DataConfig, part: Path) -> None:
    train, valid = _read(config.text), _read(config.valid) if config.valid else None
    if valid is None:
        train, valid = _split(train)
    tokenizer = TOKENIZERS[config.tokenizer].trained(train, config.vocabulary)
    np.save(part / "train.npy", tokenizer.encode(train))
    np.save(part / "valid.npy", tokenizer.encode(valid))
    (part / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")


def _split(text: str) -> tuple[str, str]:
    """Split off the last tenth, at the end of a line if there is one."""
    cut = len(text) * 9 // 10
    line = text.find("\n", cut) + 1
    cut = line if 0 < line < len(text) else cut
    return text[:cut], text[cut:]
