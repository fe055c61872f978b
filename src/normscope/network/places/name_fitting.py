"""Which prefix a checkpoint's names have in front of those of a model: `module.`, `model.bert.`, others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from normscope.anatomy import unwrapped
from normscope.errors import ModelError

Shapes = Mapping[str, Sequence[int]]
"""Shapes of tensors by their names."""

_OLD_NORM = {"gamma": "weight", "beta": "bias"}  # TensorFlow's words, in the first conversions to PyTorch
_RIVAL = 0.5  # a second prefix that fits this share of the first one's names makes it a guess


def plain_name(name: str) -> str:
    """The name without the prefixes of wrappers, and with PyTorch's words for a layer norm's parameters."""
    stem, dot, last = unwrapped(name).rpartition(".")
    return f"{stem}{dot}{_OLD_NORM.get(last, last)}" if "norm" in stem.lower() else f"{stem}{dot}{last}"


def find_prefix(stored: Shapes, expected: Shapes) -> str | None:
    """The prefix after which a checkpoint has the expected names with their shapes; None if there is none.

    The most frequent prefix wins. Two that fit about equally well are two networks of one kind, and choosing
    one would be a guess: a ModelError.
    """
    counts: Counter[str] = Counter()
    for name, shape in stored.items():
        plain = plain_name(name)
        starts = [0, *(match.end() for match in re.finditer(r"\.", plain))]
        for start in starts:
            if tuple(expected.get(plain[start:], (-1,))) == tuple(shape):
                counts[plain[:start]] += 1
    ranked = counts.most_common(2)
    if not ranked:
        return None
    if len(ranked) > 1 and ranked[1][1] >= _RIVAL * ranked[0][1]:
        first, second = sorted(prefix for prefix, _ in ranked)
        raise ModelError(
            f"the checkpoint has two networks of this kind, under {first or 'no prefix'!r} and {second!r}: "
            "load the one that you mean in a program of your own (my_model.py:build)"
        )
    return ranked[0][0]


def without_prefix(name: str, prefix: str) -> str:
    """The name that the model has for a stored tensor; names without the prefix stay as they are."""
    return plain_name(name).removeprefix(prefix)
