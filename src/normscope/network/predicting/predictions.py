"""What a model predicts at which positions, and what would have been right there.

next-token   logits at t are about token t + 1: causal language models, and decoders
tokens       logits at t are about the token (or the label) at t: masked language models, taggers
classes      one row of logits per sequence: classifiers
sets         logits at t say for each symbol whether it may come next: the lab's formal languages
states       no logits: the model's output states are compared instead
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.network.measuring.lookahead import meant_causal
from normscope.network.running.batches import Batch
from normscope.network.watching.hidden_states import first_states

TaskName = Literal["next-token", "tokens", "classes", "sets", "states"]
"""What a model predicts."""
TASKS: tuple[TaskName, ...] = ("next-token", "tokens", "classes", "sets", "states")

IGNORED = -100
"""The label of a position that does not count, as in transformers and in torch's cross-entropy."""

_NOT_TOKENS = ("attention_mask", "mask", "token_type_ids", "position_ids", "labels", "decoder_attention_mask")


@dataclass(frozen=True)
class Predicted:
    """Logits or states [n, width] of the n positions that count, what is right there, and their sentences.

    `targets` are classes [n], sets [n, width] of zeros and ones, or None if nothing says what is right.
    """

    values: Tensor
    targets: Tensor | None
    sentences: Tensor


class PredictionReader:
    """Reads the predictions out of a model's output; the first output decides what they are about."""

    def __init__(self, model: nn.Module, asked: TaskName | None = None) -> None:
        if asked is not None and asked not in TASKS:
            raise UsageError(f"task must be one of {', '.join(TASKS)}; got {asked!r}")
        self._model, self._asked = model, asked
        self._task: TaskName | None = None
        self.warnings: list[str] = []

    @property
    def task(self) -> TaskName:
        """What the model predicts."""
        assert self._task is not None, "nothing has been read yet"
        return self._task

    def run(self, batch: Batch) -> Predicted:
        """Run one forward pass and read its predictions."""
        return self.read(self._without_labels(batch).run(self._model), batch)

    def read(self, output: Any, batch: Batch) -> Predicted:
        """The predictions in an output of the model for this batch."""
        values = _logits(output)
        named = values is not None
        values = first_states(output) if values is None else values
        if values is None:
            raise UsageError(f"{type(self._model).__name__} returned no floating-point tensor to compare")
        if self._task is None:
            headless = isinstance(output, Mapping) and not named
            self._task = self._asked or ("states" if headless else self._recognise(values, batch, named))
        return self._select(values.detach(), batch)

    def _without_labels(self, batch: Batch) -> Batch:
        """Without labels a model computes no loss; but a decoder may make its inputs out of them."""
        if "labels" not in batch.kwargs or (self._has_decoder and "decoder_input_ids" not in batch.kwargs):
            return batch
        kwargs = {name: value for name, value in batch.kwargs.items() if name != "labels"}
        return Batch(batch.args, kwargs, batch.mask, batch.decoder_mask, batch.labels)

    # -- what the model predicts -----------------------------------------------------

    def _recognise(self, values: Tensor, batch: Batch, named: bool) -> TaskName:
        labels = labels_of(batch)
        if values.shape[-1] == 1 or (labels is not None and labels.is_floating_point() and labels.dim() < 3):
            return "states"  # a regression has no distribution
        if labels is not None and labels.dim() == values.dim():
            return "sets"
        if values.dim() == 2 and (named or labels is not None):
            return "classes"
        if values.dim() != 3 or not (named or labels is not None or self._has_logits(values, batch)):
            return "states"
        if self._causal(batch):
            return "next-token"
        about_tokens = labels is not None or self._vocabulary() in (None, values.shape[-1])
        return "tokens" if about_tokens else "states"

    def _has_logits(self, values: Tensor, batch: Batch) -> bool:
        """Whether a plain tensor is logits: as wide as the table of token embeddings is long."""
        tables = [module for module in self._model.modules() if isinstance(module, nn.Embedding)]
        fitting = [table for table in tables if table.num_embeddings == values.shape[-1]]
        if not fitting or token_ids(batch, decoder=False) is None:
            return False
        if any(table.embedding_dim == table.num_embeddings for table in fitting):
            self.warnings.append(
                f"the output has width {values.shape[-1]}, which is both the vocabulary and the width of the "
                "states: it was taken for states; task='next-token' or 'tokens' says that it is logits"
            )
            return False
        return True

    def _causal(self, batch: Batch) -> bool:
        if type(self._model).__name__.endswith("ForMaskedLM") or self._classifies:
            return False
        if self._has_decoder:  # labels, and what it makes its inputs of itself, are aligned with its logits
            return labels_of(batch) is None and "decoder_input_ids" in batch.kwargs
        return meant_causal(self._model)

    @property
    def _has_decoder(self) -> bool:
        """Whether the logits are a decoder's; a classifier of tokens may be the encoder of such a model."""
        config = getattr(self._model, "config", None)
        return bool(getattr(config, "is_encoder_decoder", False)) and not self._classifies

    @property
    def _classifies(self) -> bool:
        return "Classification" in type(self._model).__name__

    def _vocabulary(self) -> int | None:
        size = getattr(getattr(self._model, "config", None), "vocab_size", None)
        return size if isinstance(size, int) else None

    # -- which positions count ---------------------------------------------------------

    def _select(self, values: Tensor, batch: Batch) -> Predicted:
        if self.task == "states":
            return _states(values, batch)
        if self.task == "classes":
            return _chosen(values, labels_of(batch), torch.ones(len(values), dtype=torch.bool))
        decoder = "decoder_input_ids" in batch.kwargs
        targets = labels_of(batch)
        if targets is not None:
            decoder = decoder or self._has_decoder  # the labels are its own: the encoder's mask is another
        elif self.task != "sets":  # which symbols may come next, only labels say
            targets = token_ids(batch, decoder)
            if targets is None:
                raise UsageError(f"task {self.task!r} needs token ids or labels, and the batch has neither")
        self._check_shapes(values, targets)
        real = _real(batch, decoder, values)
        if targets is None:
            return _chosen(values, None, real)
        if self.task == "next-token":
            real = real[:, 1:] & real[:, :-1]
            values, targets = values[:, :-1], targets[:, 1:]
        counted = (targets if targets.dim() == 2 else targets[..., 0]) != IGNORED
        return _chosen(values, targets, real & counted.to(real.device))

    def _check_shapes(self, values: Tensor, targets: Tensor | None) -> None:
        wanted, each = (values.shape, "symbol") if self.task == "sets" else (values.shape[:2], "position")
        if values.dim() != 3:
            raise UsageError(
                f"task {self.task!r} needs logits of every position, and the model's have the shape "
                f"{list(values.shape)}: expected three axes"
            )
        if targets is not None and targets.shape != wanted:
            raise UsageError(
                f"labels or token ids of shape {list(targets.shape)} do not fit logits of shape "
                f"{list(values.shape)}: task {self.task!r} expects one per {each}"
            )


def labels_of(batch: Batch) -> Tensor | None:
    """The labels of a batch: its own, or those among its arguments."""
    found = batch.labels if batch.labels is not None else batch.kwargs.get("labels")
    return found if isinstance(found, Tensor) else None


def token_ids(batch: Batch, decoder: bool) -> Tensor | None:
    """The token ids that a model reads, [batch, sequence]; those of the decoder if it has one."""
    if decoder:
        return batch.kwargs["decoder_input_ids"]  # type: ignore[no-any-return]
    named = [batch.kwargs.get("input_ids"), *batch.args]
    named += [value for name, value in batch.kwargs.items() if name not in _NOT_TOKENS]
    return next((v for v in named if isinstance(v, Tensor) and v.dim() == 2 and _whole(v)), None)


def _whole(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.dtype != torch.bool


def _logits(output: Any) -> Tensor | None:
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return found if isinstance(found, Tensor) and found.is_floating_point() and found.dim() >= 2 else None


def _real(batch: Batch, decoder: bool, values: Tensor) -> Tensor:
    mask = batch.decoder_mask if decoder else batch.mask
    shape = values.shape[:2]
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=values.device)
    if mask.shape != shape:
        raise UsageError(f"the mask has shape {list(mask.shape)}; expected {list(shape)}, one per token")
    return mask.to(values.device)


def _states(values: Tensor, batch: Batch) -> Predicted:
    """The states of real tokens; of every position if no mask has their shape."""
    rows = values.reshape(len(values), -1, values.shape[-1])
    masks = (mask for mask in (batch.decoder_mask, batch.mask) if mask is not None)
    real = next((mask for mask in masks if mask.shape == rows.shape[:2]), None)
    kept = torch.ones(rows.shape[:2], dtype=torch.bool) if real is None else real
    return _chosen(rows, None, kept)


def _chosen(values: Tensor, targets: Tensor | None, kept: Tensor) -> Predicted:
    kept = kept.to(values.device)
    found = None if targets is None else targets.to(values.device)[kept]
    return Predicted(values[kept], found, kept.nonzero()[:, 0])
