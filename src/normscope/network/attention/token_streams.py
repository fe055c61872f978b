"""The tokens behind an attention call: which ids its queries and keys have, and which keys are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normscope.network.running.batches import Batch
from normscope.network.watching.attention_call import AttentionCall

_NO_TEXT = ("vision", "visual", "image", "pixel", "audio", "speech")
_DECODER_IDS = ("decoder_input_ids", "tgt", "trg", "target")
_NOT_IDS = ("mask", "type", "position", "label", "segment", "cache", "length", *_DECODER_IDS)


@dataclass(frozen=True)
class CallTokens:
    """The two sides of an attention call.

    `aligned`: queries and keys are the same positions (self-attention). Ids are [batch, positions],
    or None if the call's positions are not tokens of the batch; `real` is True at keys that are
    not padding, or None if the batch does not say.
    """

    aligned: bool
    query_ids: Tensor | None
    key_ids: Tensor | None
    real: Tensor | None


class TokenStreams:
    """Finds the tokens of each call of one forward pass; in doubt a call has none."""

    def __init__(self, batch: Batch, decoder_path: Callable[[str], bool]) -> None:
        self._batch, self._is_decoder = batch, decoder_path
        self._encoder_ids, self._decoder_ids = _token_ids(batch)
        self._encoder_ran = False
        self._found: dict[tuple[Any, ...], CallTokens] = {}

    def of(self, call: AttentionCall) -> CallTokens:
        """The tokens of a call, the same object for calls with the same ones."""
        second = self._is_decoder(call.module)
        self._encoder_ran = self._encoder_ran or not second
        second = second and self._encoder_ran
        cross = call.cross or call.keys != call.queries
        text = not any(word in call.module.lower() for word in _NO_TEXT)
        key = (call.batch, call.queries, call.keys, second, cross, text)
        if key not in self._found:
            self._found[key] = self._tokens(call, second, cross, text)
        return self._found[key]

    def _tokens(self, call: AttentionCall, second: bool, cross: bool, text: bool) -> CallTokens:
        if not text:
            return CallTokens(not cross, None, None, None)
        ids, mask = self._stream((call.batch, call.queries), second)
        if not cross:
            return CallTokens(True, ids, ids, mask)
        return CallTokens(False, ids, *self._stream((call.batch, call.keys), False))

    def _stream(self, shape: tuple[int, int], second: bool) -> tuple[Tensor | None, Tensor | None]:
        """The ids and the mask of one side; a decoder behind an encoder never has the encoder's."""
        ids = self._decoder_ids if second else self._encoder_ids
        mask = self._batch.decoder_mask if second else self._batch.mask
        if ids is not None and tuple(ids.shape) == shape[::-1] != shape:  # [sequence, batch]
            ids = ids.T
        fits = [t if t is not None and tuple(t.shape) == shape else None for t in (ids, mask)]
        return fits[0], fits[1]


def _token_ids(batch: Batch) -> tuple[Tensor | None, Tensor | None]:
    """The ids of the encoder, or of the only stream, and those of the decoder."""
    named = {name: value for name, value in batch.kwargs.items() if _is_ids(value)}
    positional = [value for value in batch.args if _is_ids(value)]
    decoder = next((named[name] for name in _DECODER_IDS if name in named), None)
    first = named.get("input_ids", next(_others(named, positional), None))
    if decoder is None and first is not None and len(positional) > 1 and first is positional[0]:
        decoder = positional[1]
    return first, decoder


def _others(named: dict[str, Tensor], positional: list[Tensor]) -> Iterator[Tensor]:
    yield from positional
    yield from (value for name, value in named.items() if not any(word in name for word in _NOT_IDS))


def _is_ids(value: Any) -> bool:
    integers = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)
    return isinstance(value, Tensor) and value.dim() == 2 and value.dtype in integers
