"""What a network predicts after each string: the set of symbols that may come next, and its last state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from normscope.errors import ModelError, UsageError
from normscope.lab.data.grammar import END, Language
from normscope.lab.data.tasks import MARKER
from normscope.network.predicting.predictions import PredictionReader
from normscope.network.running.batches import Batch
from normscope.network.watching.block_lists import BlockList, find_blocks
from normscope.network.watching.hidden_states import Edge, unit_rows, visiting

BATCH_TOKENS = 2**14
MOST_STATES = 4000
DIRECTION_TOLERANCE = 1e-3
"""Two states have the same direction if 1 − cosine is at most this."""


class NotFinite(ModelError):
    """A network predicted NaN or infinite logits."""


class SetReader:
    """Reads the predicted sets of a network as it is now; what was read is kept, and not read again.

    Each string is run by itself, without padding, so that it does not matter whether the network is causal.
    """

    def __init__(self, model: nn.Module, language: Language) -> None:
        self._model = model
        self._language = language
        self._symbols = END + language.alphabet
        self._sets: dict[str, str] = {}

    def __call__(self, strings: Sequence[str]) -> list[str]:
        """Return the sets after strings of one length."""
        unread = [string for string in strings if string not in self._sets]
        for batch, part in self._batches(unread):
            logits = self._logits(batch, part)
            for string, row in zip(part, (logits > 0).tolist(), strict=True):
                legal = (symbol for symbol, one in zip(self._symbols[1:], row[1:], strict=True) if one)
                self._sets[string] = "".join(legal) + (END if row[0] else "")
        return [self._sets[string] for string in strings]

    def all_sets(self, strings: Iterable[str]) -> list[str]:
        """Return the sets after strings of any lengths."""
        kept = list(strings)
        for same in _by_length(kept).values():
            self(same)
        return [self._sets[string] for string in kept]

    def last_states(self, strings: Sequence[str], blocks: Sequence[BlockList]) -> Tensor | None:
        """Return the last layer's state after each string; None if it cannot be seen or is not finite."""
        found: dict[str, Tensor] = {}
        for same in _by_length(strings).values():
            for batch, part in self._batches(same):
                states = _last_layer(self._model, batch, blocks)
                if states is None or not bool(states.isfinite().all()):
                    return None
                found.update(zip(part, states, strict=True))
        return torch.stack([found[string] for string in strings])

    def _batches(self, strings: Sequence[str]) -> Iterator[tuple[Batch, Sequence[str]]]:
        size = max(1, BATCH_TOKENS // (len(strings[0]) + 1)) if strings else 1
        for first in range(0, len(strings), size):
            part = strings[first : first + size]
            yield token_batch(self._model, self._symbols, part), part

    def _logits(self, batch: Batch, strings: Sequence[str]) -> Tensor:
        values = PredictionReader(self._model, "sets").run(batch).values
        if values.shape[-1] != len(self._symbols):
            raise UsageError(
                f"the model predicts {values.shape[-1]} symbols, and {self._language.name} has "
                f"{len(self._symbols)}, with the end of a word: give a model that was trained on this task"
            )
        logits = values.reshape(len(strings), -1, values.shape[-1])[:, -1]
        broken = ~logits.isfinite().all(-1)
        if bool(broken.any()):
            first = strings[int(broken.nonzero()[0])]
            raise NotFinite(f"the logits after {first!r} are NaN or infinite")
        return logits


def token_batch(model: nn.Module, symbols: str, strings: Sequence[str]) -> Batch:
    """Return strings of one length as the lab encodes them: the marker, then the number of each symbol."""
    ids = [[MARKER, *(symbols.index(symbol) for symbol in string)] for string in strings]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return Batch((torch.tensor(ids, device=device),))


def visible_blocks(model: nn.Module, language: Language) -> list[BlockList]:
    """Return the layers of a model; none if it has no repeated blocks."""
    try:
        return find_blocks(model, token_batch(model, END + language.alphabet, [language.alphabet]))
    except ModelError:
        return []


def distinct_directions(states: Tensor, tolerance: float = DIRECTION_TOLERANCE) -> int:
    """Count the directions of states [n, width] that differ by more than `tolerance` in cosine.

    The first state stands for all that are as near to it, the first of the others for all that are as
    near to that one, and so on. States of zero share one direction.
    """
    left, count = unit_rows(states.double()), 0
    while len(left):
        near = (left @ left[0] >= 1 - tolerance) | (left == left[0]).all(-1)
        left, count = left[~near], count + 1
    return count


def _last_layer(model: nn.Module, batch: Batch, blocks: Sequence[BlockList]) -> Tensor | None:
    """The states [batch, width] at the last position of the last layer; None if they have another layout."""
    seen: list[Tensor] = []

    def visit(edge: Edge, states: Tensor) -> None:
        if edge.layer > 0:
            seen.append(states)

    with visiting(model, blocks, visit):
        batch.run(model)
    if not seen or seen[-1].dim() != 3 or seen[-1].shape[:2] != batch.args[0].shape:
        return None
    return seen[-1][:, -1]


def _by_length(strings: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for string in strings:
        found.setdefault(len(string), []).append(string)
    return found
