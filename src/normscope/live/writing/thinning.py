"""Which records are kept when a run file cannot be written for so long that memory is full.

The newest alone would leave a hole where the outage began; so records are dropped all over the outage, and
those that stay are about equally far apart. What deletes, notes or warns is never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normscope.live.writing.journal_entries import JournalEntry, Record, Scalars

KEPT = 0.75
"""The share of records that are kept at most each time."""


@dataclass(frozen=True)
class Lost:
    """How many entries could not be kept in memory, and of which steps."""

    number: int = 0
    first: int = 0
    last: int = 0

    def with_steps(self, steps: Sequence[int]) -> Lost:
        """The same, with the entries of these steps."""
        known = (*steps, *((self.first, self.last) if self.number else ()))
        return Lost(self.number + len(steps), min(known), max(known)) if known else self

    def __str__(self) -> str:
        return (
            f"{self.number} records and logged values of steps {self.first} to {self.last} were dropped, "
            "because the file could not be written and the memory for them was full"
        )


class Thinning:
    """Drops records and logged values, and counts them in `lost`."""

    def __init__(self) -> None:
        self.lost = Lost()

    def __call__(self, entries: Sequence[JournalEntry]) -> list[JournalEntry]:
        """The entries that are kept, in order."""
        dropped: set[int] = set()
        for kind in (Record, Scalars):
            places = [i for i, entry in enumerate(entries) if isinstance(entry, kind)]
            steps = [_step(entries[i]) for i in places]
            dropped.update({*places} - {places[i] for i in spread(steps, int(KEPT * len(steps)))})
        self.lost = self.lost.with_steps([_step(entries[i]) for i in dropped])
        return [entry for i, entry in enumerate(entries) if i not in dropped]


def spread(steps: Sequence[int], most: int) -> list[int]:
    """The indices of at most so many steps, about equally far apart; the last one is always there.

    >>> spread([0, 1, 2, 3, 4, 5, 6, 7], 4)
    [1, 3, 5, 7]
    """
    gap = 1
    kept = list(range(len(steps)))
    while len(kept) > max(1, most):
        gap *= 2
        last, kept = steps[-1], [len(steps) - 1]
        for i in range(len(steps) - 2, -1, -1):
            if abs(steps[i] - last) >= gap:
                kept.append(i)
                last = steps[i]
    return sorted(kept)


def _step(entry: JournalEntry) -> int:
    assert isinstance(entry, Record | Scalars)
    return entry.step
