"""The inputs of a model, and which of their positions are real tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.option_checks import check_kind

_REAL = ("attention_mask", "mask")
_PADDING = ("src_key_padding_mask", "key_padding_mask", "padding_mask")
_DECODER_REAL = ("decoder_attention_mask",)
_DECODER_PADDING = ("tgt_key_padding_mask",)


@dataclass(frozen=True, eq=False)
class Batch:
    """The arguments of one forward pass: `args` by position, `kwargs` by name.

    `mask` and `decoder_mask` are bool [batch, sequence], True at real tokens,
    whatever layout the model itself uses; None means that every position is real. `labels` say what is
    right, for `ablations` and `saturated_task`; the model is not called with them. `separators` are the ids
    of tokens that separate or end sentences, if the model's config does not know them.

    >>> import torch
    >>> import normscope as ns
    >>> tokens = torch.tensor([[5, 7, 2], [5, 2, 0]])
    >>> batch = ns.Batch((tokens,), mask=tokens != 0)
    >>> batch.run(torch.nn.Embedding(8, 4)).shape
    torch.Size([2, 3, 4])
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    mask: Tensor | None = None
    decoder_mask: Tensor | None = None
    labels: Tensor | None = None
    separators: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        check_kind("args", self.args, (tuple, list), "a tuple of arguments")
        check_kind("kwargs", self.kwargs, Mapping, "a dict of keyword arguments")
        for option in ("mask", "decoder_mask"):
            if getattr(self, option) is not None:
                object.__setattr__(self, option, _checked_mask(option, getattr(self, option)))
        check_kind("labels", self.labels, (Tensor, type(None)), "a tensor")

    def run(self, model: nn.Module) -> Any:
        """Run one forward pass and return the model's output."""
        return model(*self.args, **self.kwargs)


Batches: TypeAlias = Iterable[Any]
"""Each item is a Batch, a dict of keyword arguments, a tuple of arguments, or one tensor."""


def _checked_mask(option: str, mask: Any) -> Tensor:
    """The mask as bool [batch, sequence]; other numbers would select states by their index."""
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        shape = f"a tensor of shape {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
        raise UsageError(f"{option} must be a bool tensor [batch, sequence]; got {shape}")
    return mask if mask.dtype == torch.bool else mask != 0


def as_batches(batches: Any) -> list[Batch]:
    """The user's batches as a list of Batch; a single dict, tensor or Batch becomes a list of one."""
    if isinstance(batches, (Batch, Mapping, Tensor)):
        batches = [batches]
    if not isinstance(batches, Iterable) or isinstance(batches, str):
        raise UsageError(f"batches must be a list of what the model is called with; got {batches!r}")
    found = [as_batch(batch) for batch in batches]
    if not found:
        raise UsageError("nothing to run the model on: expected at least one batch, got none")
    return found


def as_batch(value: Any) -> Batch:
    """Turn what a model is called with into a Batch, and find its padding mask among the arguments."""
    if isinstance(value, Batch):
        return value
    if isinstance(value, Mapping):
        kwargs = {str(key): item for key, item in value.items()}
        decoder = _token_mask(kwargs, _DECODER_REAL, _DECODER_PADDING)
        return Batch((), kwargs, _token_mask(kwargs, _REAL, _PADDING), decoder)
    if isinstance(value, Tensor):
        return Batch((value,))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Batch(tuple(value))
    raise UsageError(
        "a batch must be a dict of keyword arguments, a tuple of arguments, a tensor or a normscope.Batch; "
        f"got {type(value).__name__}"
    )


def token_count(batch: Batch) -> int | None:
    """The number of real tokens, encoder and decoder together; None if there is no mask."""
    masks = [mask for mask in (batch.mask, batch.decoder_mask) if mask is not None]
    return sum(int(mask.sum()) for mask in masks) if masks else None


def grouped(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Divide batches into groups with at most as many real tokens as the largest batch.

    The plain states of a group stay in memory until the scaled pass. One group for the
    whole corpus would scale the parameters only once, but its memory would grow with
    the corpus. With these groups the memory is that of one forward pass with hidden
    states, and scaling costs a few per cent of the work on about a thousand tokens.
    """
    most = max((token_count(batch) or 0 for batch in batches), default=0)
    group: list[Batch] = []
    total = 0
    for batch in batches:
        tokens = token_count(batch)
        if group and (tokens is None or total + tokens > most):
            yield group
            group, total = [], 0
        group.append(batch)
        total += tokens or most
    if group:
        yield group


def sample(batches: Sequence[Batch]) -> Batch:
    """A small batch for finding the blocks: one row of the smallest batch, if it can be split by rows."""
    smallest = min(batches, key=lambda batch: token_count(batch) or 0)
    return _rows(smallest, [0]) if _has_rows(smallest) else smallest


def some_rows(batches: Sequence[Batch], positions: int) -> list[Batch]:
    """Rows from all over the batches, with about this many positions together; at least one row.

    A batch that cannot be split by rows is taken whole or not at all; the smallest come first.
    """
    places = [(number, row) for number, batch in enumerate(batches) for row in _row_numbers(batch)]
    kept: dict[int, list[int]] = {}
    if places:
        sizes = [
            position_count(batches[number]) // len(_row_numbers(batches[number])) for number, _ in places
        ]
        count = max(1, min(len(places), positions * len(places) // max(1, sum(sizes))))
        for index in range(count):
            number, row = places[index * len(places) // count]
            kept.setdefault(number, []).append(row)
        return [_rows(batches[number], _not_square(batches[number], rows)) for number, rows in kept.items()]
    ordered = sorted(batches, key=position_count)
    total, found = 0, ordered[:1]
    for before, batch in pairwise(ordered):
        total += position_count(before)
        if total + position_count(batch) > positions:
            break
        found.append(batch)
    return found


def position_count(batch: Batch) -> int:
    """The number of positions, padding included: of the mask, or of the first argument with two axes."""
    tensors = [batch.mask, *batch.args, *batch.kwargs.values()]
    shapes = [value.shape for value in tensors if isinstance(value, Tensor) and value.dim() >= 2]
    return int(shapes[0][0] * shapes[0][1]) if shapes else 1


def _has_rows(batch: Batch) -> bool:
    """Whether the first axis of every tensor is the batch: so says the mask, or token ids under that name."""
    known = batch.mask if batch.mask is not None else batch.kwargs.get("input_ids")
    if not isinstance(known, Tensor) or known.dim() != 2:
        return False
    tensors = [value for value in (*batch.args, *batch.kwargs.values()) if isinstance(value, Tensor)]
    return all(value.shape[:1] == known.shape[:1] for value in tensors)


def _row_numbers(batch: Batch) -> range:
    tensors = (value for value in (batch.mask, *batch.kwargs.values()) if isinstance(value, Tensor))
    return range(len(next(tensors))) if _has_rows(batch) else range(0)


def _not_square(batch: Batch, rows: list[int]) -> list[int]:
    """One row less if there are as many rows as positions: the axes could not be told apart."""
    width = position_count(batch) // len(_row_numbers(batch))
    return rows[:-1] if len(rows) == width > 1 else rows


def _rows(batch: Batch, rows: list[int]) -> Batch:
    def cut(value: Any) -> Any:
        return value[rows] if isinstance(value, Tensor) else value

    kwargs = {key: cut(value) for key, value in batch.kwargs.items()}
    tensors = {name: cut(getattr(batch, name)) for name in ("mask", "decoder_mask", "labels")}
    return replace(batch, args=tuple(map(cut, batch.args)), kwargs=kwargs, **tensors)


def to_device(batch: Batch, device: torch.device, dtype: torch.dtype | None = None) -> Batch:
    """A copy of the batch on another device, with its floating-point tensors in another dtype."""

    def move(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(device, dtype if value.is_floating_point() else None)

    kwargs = {key: move(value) for key, value in batch.kwargs.items()}
    tensors = {name: move(getattr(batch, name)) for name in ("mask", "decoder_mask", "labels")}
    return replace(batch, args=tuple(map(move, batch.args)), kwargs=kwargs, **tensors)


def _token_mask(kwargs: Mapping[str, Any], real: Iterable[str], padding: Iterable[str]) -> Tensor | None:
    for name in real:
        if isinstance(kwargs.get(name), Tensor) and kwargs[name].dim() == 2:
            return kwargs[name] != 0  # type: ignore[no-any-return]
    for name in padding:
        mask = kwargs.get(name)
        if isinstance(mask, Tensor) and mask.dim() == 2:
            return ~mask if mask.dtype == torch.bool else mask == 0
    return None
