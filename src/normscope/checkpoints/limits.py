"""What a checkpoint may declare: one check between every reader and the run file.

A header can claim anything: sizes that no file holds, a million names, integers that SQLite cannot store.
Whatever a reader returns, or raises, passes through here. The limits are far above those of real
checkpoints; the environment variable NORMSCOPE_LIMITS changes them, as in "tensors=500000 name=4000".
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.errors import CheckpointError, CorruptCheckpoint, NormscopeError, UsageError

INT64 = (1 << 63) - 1
"""The largest integer that SQLite stores."""
AXES = 64
VARIABLE = "NORMSCOPE_LIMITS"


@dataclass(frozen=True)
class Limits:
    """How much one checkpoint may declare; see docs/security.md."""

    tensors: int = 200_000
    """Tensors, and other entries, of one checkpoint."""
    name: int = 1_000
    """Characters of one name."""
    names: int = 30_000_000
    """Characters of all names together."""
    expansion: int = 64
    """Bytes of values for each byte stored: quantised, compressed or shared by several tensors."""
    unstored: int = 1 << 28
    """Bytes of values that may be declared however small the files are, such as arrays that are all zero."""
    parts: int = 100_000
    """Parts of which the tensors of one checkpoint consist: shards, slices."""
    work: int = 5_000_000
    """Entries visited while looking for the model in a pickle; one that is reached twice counts twice."""


def limits() -> Limits:
    """The limits of this process."""
    return _parsed(os.environ.get(VARIABLE, ""))


@lru_cache(maxsize=8)
def _parsed(text: str) -> Limits:
    known = [field.name for field in fields(Limits)]
    changed: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name not in known or not value.isascii() or not value.isdigit() or not 0 < len(value) < 19:
            raise UsageError(
                f"{VARIABLE} must be like 'tensors=500000 name=4000'; got {word[:80]!r}. "
                f"The limits are {', '.join(known)}."
            )
        changed[name] = int(value)
    return Limits(**changed)


def open_checked(opener: Callable[[], Checkpoint], where: str) -> Checkpoint:
    """Open a checkpoint and check what it declares; whatever its reader raises, the error names `where`."""
    with reading(where):
        checkpoint = opener()
    try:
        with reading(where):
            check_declared(checkpoint, where)
    except NormscopeError:
        checkpoint.close()
        raise
    return checkpoint


class reading:  # noqa: N801 (used like a function; a generator would take three times as long)
    """Turn what a parser raises into an error of ours that names the file."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Nothing is needed."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the error of ours in place of another one."""
        if isinstance(error, Exception) and not isinstance(error, NormscopeError):
            raise unreadable(self._where, error) from error


def unreadable(where: str, error: Exception) -> NormscopeError:
    """The error to raise for what a reader raised: its own, or one that names the file."""
    if isinstance(error, NormscopeError):
        return error
    if isinstance(error, OSError):
        return CheckpointError(f"{where} cannot be read: {error.strerror or type(error).__name__}.")
    if isinstance(error, MemoryError):
        return CheckpointError(f"{where} needs more memory than there is.")
    words = str(error) if isinstance(error, ValueError | ArithmeticError) else ""
    reason = f"{type(error).__name__}{': ' if words else ''}{words[:120]}"
    return CorruptCheckpoint(f"{where} is damaged ({reason!r}). Copy or save it again.")


_sound: deque[tuple[Mapping[str, Tensor], int]] = deque(maxlen=8)
"""Tables that have been checked, and the bytes of their values: the checkpoints of a series may share one."""


def check_declared(checkpoint: Checkpoint, where: str) -> None:
    """Raise CorruptCheckpoint if the run file could not hold what a checkpoint declares, or its files not."""
    allowed = limits()
    tensors = checkpoint.tensors
    total = next((total for known, total in tuple(_sound) if known is tensors), None)
    if total is None:
        _check_names(tensors, where, allowed)
        total = sum(_checked_bytes(tensor, where) for tensor in tensors.values())
        _sound.append((tensors, total))
    _check_names(checkpoint.skipped, where, allowed)
    if checkpoint.step is not None and not 0 <= checkpoint.step <= INT64:
        raise CorruptCheckpoint(f"{where} is said to be of a step that is not between 0 and 2**63.")
    most = allowed.expansion * checkpoint.nbytes + allowed.unstored
    if total > most:  # unless tensors are tied: those count once
        total = sum({tensor.storage: tensor.nbytes for tensor in tensors.values()}.values())
    if total > most:
        raise CorruptCheckpoint(
            f"{where} declares {total:,} bytes of values in files of {checkpoint.nbytes:,} bytes "
            f"(limit {allowed.expansion} for each byte stored, and {allowed.unstored:,})."
        )


def _check_names(names: Mapping[str, object], where: str, allowed: Limits) -> None:
    if len(names) > allowed.tensors:
        raise CorruptCheckpoint(f"{where} has too many entries: {len(names):,} (limit {allowed.tensors:,}).")
    total = 0
    for name in names:
        total += len(name)
        if len(name) > allowed.name:
            raise CorruptCheckpoint(
                f"{where} has a name of {len(name):,} characters (limit {allowed.name:,}): {name[:60]!r}…"
            )
        if not is_text(name):
            raise CorruptCheckpoint(f"{where} has a name that is not valid Unicode: {name[:100]!r}.")
    if total > allowed.names:
        raise CorruptCheckpoint(
            f"{where} has names of {total:,} characters in all (limit {allowed.names:,})."
        )


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False


def _checked_bytes(tensor: Tensor, where: str) -> int:
    """The bytes of a tensor's values; CorruptCheckpoint if its shape is impossible."""
    # Each size is checked before they are multiplied: integers of a million digits take long.
    shape = tensor.shape
    if len(shape) > AXES or any(type(size) is not int or not 0 <= size <= INT64 for size in shape):
        raise CorruptCheckpoint(
            f"{where} has a tensor {tensor.name[:100]!r} with more than {AXES} axes, or sizes beyond 2**63."
        )
    if 8 * tensor.numel > INT64:
        raise CorruptCheckpoint(f"{where} has a tensor {tensor.name[:100]!r} of more than 2**60 elements.")
    return tensor.nbytes
