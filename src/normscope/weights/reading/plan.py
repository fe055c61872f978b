"""Which rows of a tensor are missing, and which checkpoints must be read for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from normscope.run import NO_PREVIOUS


@dataclass(frozen=True)
class Chain:
    """The checkpoints, by index, that are measured and read for one tensor.

    Those in `rows` get a row each, which compares them with the checkpoint before. `reads` are
    all that must be read for that: the rows, the checkpoint before each of them, and the
    first one.
    """

    rows: frozenset[int]
    reads: tuple[int, ...]


def missing_chain(steps: Sequence[int], have: Collection[tuple[int, int]]) -> Chain | None:
    """The chain of rows that one tensor lacks; `have` are the (step, previous step) of those it has."""
    previous = [NO_PREVIOUS, *steps[:-1]]
    rows = frozenset(i for i, pair in enumerate(zip(steps, previous, strict=True)) if pair not in have)
    if not rows:
        return None
    reads = {0, *rows, *(i - 1 for i in rows if i > 0)}
    return Chain(rows, tuple(sorted(reads)))
