"""What training asks of its data, whether text or a formal language."""

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
    """Token numbers and what is to be predicted from them; batch × length (× …)."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Evaluation:
    """Sums over predicted tokens, and over whole sequences where they are judged; they add up."""

    nats: float = 0.0
    right: int = 0
    tokens: int = 0
    right_sequences: int = 0
    sequences: int = 0

    def __add__(self, other: Evaluation) -> Evaluation:
        return Evaluation(
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
        """Share of tokens predicted right."""
        return self.right / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(mean nats per token); infinite where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    def measures(self) -> dict[str, float]:
        """The named results: loss, accuracy, and perplexity or the share of whole sequences right."""
        named = {"loss": self.loss, "accuracy": self.accuracy}
        if self.sequences:
            return named | {"sequence_accuracy": self.right_sequences / self.sequences}
        return named | {"perplexity": self.perplexity}


class Data(abc.ABC):
    """Endless training batches, addressed by number, and fixed batches to evaluate on."""

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of different tokens."""

    @property
    @abc.abstractmethod
    def positions(self) -> int:
        """Positions predicted in a training sequence."""

    @property
    @abc.abstractmethod
    def max_length(self) -> int:
        """The longest sequence of any split."""

    @property
    @abc.abstractmethod
    def sequences(self) -> int:
        """Sequences in one epoch."""

    @abc.abstractmethod
    def batch(self, number: int, size: int, seed: int) -> TrainingBatch:
        """Training batch `number`; the same arguments give the same batch, in any process."""

    @abc.abstractmethod
    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean loss that training lowers."""

    @abc.abstractmethod
    def evaluations(self, batches: int, size: int) -> dict[str, list[TrainingBatch]]:
        """The held-out batches of each split."""

    def real(self, batch: TrainingBatch) -> Tensor | None:
        """Which positions hold a token and no padding; None when all do."""
        return None

    @abc.abstractmethod
    def score(self, logits: Tensor, targets: Tensor) -> Evaluation:
        """Sums to judge these predictions by."""


@lru_cache(maxsize=4)
def order_of(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """The order in which an epoch reads its `count` sequences."""
    return np.random.default_rng([seed, epoch, count]).permutation(count)


def made_once(place: Path, build: Callable[[Path], None]) -> Path:
    """The folder `place`, filled by `build` unless it is there; processes may race for it."""
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        build(part)
        part.rename(place)
    except OSError:
        if not place.exists():  # otherwise another process was first, with the same content
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place
