"""What a grammar makes, and what reading it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any


@dataclass(frozen=True)
class Values:
    """One tensor, or one column of a log, as a reader gives it."""

    shape: tuple[int, ...]
    data: bytes
    dtype: str = ""


@dataclass(frozen=True)
class Mutant:
    """Files to write below an empty folder.

    `truth` is what the grammar knows of the numbers: the values of every tensor, None for one that must not
    be accepted; None in place of all of them if it cannot tell. A mutant that is `sound` must be accepted.
    """

    files: Mapping[str, bytes]
    truth: Mapping[str, Values | None] | None = None
    sound: bool = False


@dataclass
class Answer:
    """What was accepted: tensors by name, what was skipped, and the sums of those that are measured."""

    tensors: dict[str, Values] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    sums: dict[str, tuple[float, ...]] = field(default_factory=dict)
    other: Any = None


class Undecided(Exception):
    """The other reader cannot judge this mutant, for a reason that is no fault of ours."""


def by_truth(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Judge an answer by what the grammar knows."""
    if mutant.truth is None:
        raise Undecided
    for name, values in (answer.tensors if answer is not None else {}).items():
        right = mutant.truth.get(name)
        if right is None:
            return f"{name[:80]!r} was accepted and must not be"
        if not values.dtype or (right.dtype and right.dtype != values.dtype):
            return f"{name[:80]!r} has the dtype {values.dtype}, expected {right.dtype}"
        if values.shape != right.shape or values.data[: len(right.data)] != right.data:
            return f"{name[:80]!r} is {values!r:.200}, expected {right!r:.200}"
    missing = mutant.truth.keys() - answer.tensors.keys() if answer is not None else ()
    lost = [name for name in missing if mutant.truth[name] is not None and name not in answer.skipped]
    return f"tensors are neither read nor skipped: {lost[:3]!r}" if lost else None


@dataclass(frozen=True)
class Grammar:
    """A format: how a mutant is made, how we read it, and how the answer is judged.

    `judge` gets our answer, None if we refused the mutant. It returns a sentence if that is wrong, None if it
    is right, and raises anything if it cannot tell.
    """

    name: str
    make: Callable[[Random], Mutant]
    read: Callable[[Path], Answer]
    judge: Callable[[Mutant, Path, Answer | None], str | None] = by_truth
    scanned: bool = True
    """Whether `ns.scan` is tried as well."""
