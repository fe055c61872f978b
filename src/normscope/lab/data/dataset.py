"""The interface between training and its data, whether text or a formal language."""

from __future__ import annotations

import abc
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor


class TrainingBatch(NamedTuple):
    """Token ids and the targets to predict from them; batch × length (× …).

    `inputs` are what the model reads, `targets` what the loss compares its logits with.

    >>> import torch
    >>> ns.TrainingBatch(torch.tensor([[1, 2]]), torch.tensor([[2, 3]])).targets.tolist()
    [[2, 3]]
    """

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class ScoreSums:
    """Loss and correct predictions, summed over tokens and, for tasks, over whole sequences.

    `nats` is the loss summed over `tokens`, of which `right` were predicted correctly; so were all tokens of
    `right_sequences` of the `sequences`. Sums of different batches can be added.

    >>> (ns.ScoreSums(nats=6.0, right=1, tokens=2) + ns.ScoreSums(nats=2.0, right=2, tokens=2)).loss
    2.0
    """

    nats: float = 0.0
    right: int = 0
    tokens: int = 0
    right_sequences: int = 0
    sequences: int = 0

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(
            self.nats + other.nats,
            self.right + other.right,
            self.tokens + other.tokens,
            self.right_sequences + other.right_sequences,
            self.sequences + other.sequences,
        )

    @property
    def loss(self) -> float:
        """Mean nats per token."""
        return self.nats / self.tokens

    @property
    def accuracy(self) -> float:
        """Share of tokens predicted correctly."""
        return self.right / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(mean nats per token); infinite where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    def measures(self) -> dict[str, float]:
        """Return loss, accuracy, and perplexity or, for tasks, the share of sequences without a mistake."""
        named = {"loss": self.loss, "accuracy": self.accuracy}
        if self.sequences:
            return named | {"sequence_accuracy": self.right_sequences / self.sequences}
        return named | {"perplexity": self.perplexity}


@dataclass(frozen=True)
class DataSizes:
    """What a model and a run must know about the data.

    `vocab_size` is the number of tokens, `positions` are the positions predicted per training sequence,
    `max_length` is the longest sequence of any split, `sequences` the number of sequences per epoch.

    >>> ns.DataSizes(vocab_size=10, positions=8, max_length=8, sequences=1000).max_length
    8
    """

    vocab_size: int
    positions: int
    max_length: int
    sequences: int


class Dataset(abc.ABC):
    """Endless training batches, addressed by number, and fixed batches to evaluate on.

    Derive from it to train on data of your own: `ns.DataConfig(dataset=...)`.

    >>> import torch
    >>> class Counting(ns.Dataset):
    ...     sizes = ns.DataSizes(vocab_size=10, positions=8, max_length=8, sequences=1000)
    ...     def batch(self, number, size, seed):
    ...         start = torch.randint(10, (size, 1), generator=torch.Generator().manual_seed(seed + number))
    ...         rows = (start + torch.arange(9)) % 10
    ...         return ns.TrainingBatch(rows[:, :-1], rows[:, 1:])
    ...     def loss(self, logits, targets):
    ...         return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    ...     def evaluations(self, batches, size):
    ...         return {"valid": [self.batch(-1 - number, size, seed=10**6) for number in range(batches)]}
    ...     def score(self, logits, targets):
    ...         right = int((logits.argmax(-1) == targets).sum())
    ...         nats = float(self.loss(logits, targets)) * targets.numel()
    ...         return ns.ScoreSums(nats, right, targets.numel())
    >>> Counting().batch(0, size=2, seed=0).inputs.shape
    torch.Size([2, 8])
    """

    @property
    @abc.abstractmethod
    def sizes(self) -> DataSizes:
        """Vocabulary, lengths and number of sequences."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences to say about this data beside every result."""
        return ()

    @abc.abstractmethod
    def batch(self, number: int, size: int, seed: int) -> TrainingBatch:
        """Return training batch `number`; the same arguments give the same batch in any process."""

    @abc.abstractmethod
    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss that training minimises."""

    @abc.abstractmethod
    def evaluations(self, batches: int, size: int) -> dict[str, list[TrainingBatch]]:
        """Return the held-out batches of each split."""

    def token_mask(self, batch: TrainingBatch) -> Tensor | None:
        """Return True for positions with a token, False for padding; None if there is no padding."""
        return None

    @abc.abstractmethod
    def score(self, logits: Tensor, targets: Tensor) -> ScoreSums:
        """Return loss and correct predictions, summed over the batch."""


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """Return the order in which an epoch reads its `count` sequences."""
    return np.random.default_rng([seed, epoch, count]).permutation(count)


def build_once(place: Path, build: Callable[[Path], None]) -> Path:
    """Return the folder `place`; if it does not exist, `build` fills it, even if processes race to do so."""
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        build(part)
        part.rename(place)
    except OSError:
        if not place.exists():  # else another process was first, with the same content
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place
