"""Integers of a few bits in bytes and words of 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.formats.quantised.stored_parts import Bytes, Floats

Words: TypeAlias = npt.NDArray[np.uint32]
RUN = 32
"""Elements that fill as many whole words as each has bits."""


def unpack_dense(words: npt.NDArray[Any], bits: int) -> Bytes:
    """The 32 elements in every `bits` words; element i is at the bits i·bits … of the words in a row.

    Axis 1 has the words, of which there are `bits`; in the result it has the elements.
    """
    runs: Words = words.view(np.uint32) if words.dtype == np.int32 else words
    mask = np.uint32((1 << bits) - 1)
    result = np.empty((runs.shape[0], RUN, *runs.shape[2:]), np.uint8)
    for i in range(RUN):
        word, shift = divmod(i * bits, 32)
        value = runs[:, word] >> np.uint32(shift)
        if shift + bits > 32:
            value = value | runs[:, word + 1] << np.uint32(32 - shift)
        result[:, i] = value & mask
    return result


def unpack_ordered(words: Words, order: Sequence[int]) -> Bytes:
    """The eight 4-bit elements of each word along the last axis; the i-th lowest is at order[i]."""
    result = np.empty((*words.shape, 8), np.uint8)
    for i, position in enumerate(order):
        result[..., position] = (words >> np.uint32(4 * i)) & np.uint32(15)
    return result.reshape(*words.shape[:-1], -1)


def pair_table(levels: Floats, high_first: bool) -> npt.NDArray[np.float64]:
    """The two float32 values in each byte, side by side in eight bytes: one look-up gives both."""
    codes = np.arange(256)
    low, high = levels[codes & 15], levels[codes >> 4]
    pairs = np.stack((high, low) if high_first else (low, high), axis=-1)
    return np.ascontiguousarray(pairs, np.float32).view(np.float64).reshape(256)
