"""A batch repeated: copies of its rows, one after the other, in one larger batch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from normscope.network.running.batches import Batch


def row_count(batch: Batch) -> int | None:
    """The number of rows of a batch; None if its tensors do not agree about it.

    A tensor of one row is broadcast, and everything that is not a tensor is passed on; tensors inside
    of lists and dicts cannot be repeated.
    """
    masks = (batch.mask, batch.decoder_mask, batch.labels)
    values = [value for value in (*batch.args, *batch.kwargs.values(), *masks) if value is not None]
    if any(isinstance(value, (list, tuple, dict)) for value in values):
        return None
    sizes = {len(value) for value in values if isinstance(value, Tensor) and value.dim()}
    rows = max(sizes, default=1)
    return rows if sizes and sizes <= {1, rows} else None


def copies_of(batch: Batch, copies: int, rows: int) -> Batch:
    """The rows of a batch `copies` times; the first copy, then the second, and so on."""

    def repeat(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.dim() or len(value) != rows:
            return value
        return value.repeat(copies, *[1] * (value.dim() - 1))

    kwargs = {key: repeat(value) for key, value in batch.kwargs.items()}
    masks = (repeat(batch.mask), repeat(batch.decoder_mask))
    return Batch(tuple(map(repeat, batch.args)), kwargs, *masks, repeat(batch.labels))
