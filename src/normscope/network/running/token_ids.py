"""Token ids from a file, as inputs without a tokenizer: .npy, .npz or .jsonl.

Nothing here imports torch, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from normscope.errors import UsageError

_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"
EXPECTED = (
    "expected an .npy file of integers [n, length], an .npz file with input_ids and attention_mask, or a "
    ".jsonl file with a list of ids on each line"
)


@dataclass(frozen=True)
class TokenRow:
    """One sequence of token ids; `mask` is 0 at padding, None if every position is a token."""

    ids: tuple[int, ...]
    mask: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def real(self) -> tuple[int, ...]:
        """1 at every token, 0 at padding."""
        return self.mask if self.mask is not None else (1,) * len(self.ids)

    def cut(self, length: int | None) -> TokenRow:
        """The first `length` positions."""
        return TokenRow(self.ids[:length], None if self.mask is None else self.mask[:length])

    def without_padding(self) -> TokenRow:
        """The tokens alone."""
        return TokenRow(tuple(token for token, real in zip(self.ids, self.real, strict=True) if real))


def read_token_ids(path: Path, limit: int | None = None) -> tuple[TokenRow, ...]:
    """The first `limit` sequences of a file of token ids; anything but ids is a UsageError."""
    if not path.is_file():
        raise UsageError(f"no file of token ids at {path}: {EXPECTED}")
    readers = {".npy": _from_npy, ".npz": _from_npz, ".jsonl": _from_jsonl}
    if path.suffix.lower() not in readers:
        raise UsageError(f"{path} is not a file of token ids: {EXPECTED}")
    rows = tuple(readers[path.suffix.lower()](path, limit))
    if not rows:
        raise UsageError(f"{path} has no token ids: {EXPECTED}")
    return rows


def ids_digest(rows: Sequence[TokenRow]) -> str:
    """A digest of token ids and their masks."""
    text = json.dumps([[row.ids, row.mask] for row in rows])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- arrays ----------------------------------------------------------------------------


def _from_npy(path: Path, limit: int | None) -> Iterator[TokenRow]:
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(_unreadable(path, error)) from None
    return _rows(path, _checked_array(path, "the array", array), None, limit)


def _from_npz(path: Path, limit: int | None) -> Iterator[TokenRow]:
    with _archive(path) as archive:
        if _IDS not in archive.files:
            raise UsageError(f"{path} has no array {_IDS!r} (it has {', '.join(archive.files) or 'none'})")
        ids = _checked_array(path, _IDS, _member(path, archive, _IDS))
        if _TYPES in archive.files and np.any(_member(path, archive, _TYPES)):
            raise UsageError(_no_types(path))
        mask = _member(path, archive, _MASK) if _MASK in archive.files else None
    if mask is not None and mask.shape != ids.shape:
        raise UsageError(f"{path}: {_MASK} has the shape {list(mask.shape)}, {_IDS} has {list(ids.shape)}")
    return _rows(path, ids, mask, limit)


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    with path.open("rb") as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise UsageError(_unreadable(path, error)) from None
        if isinstance(archive, np.ndarray):
            raise UsageError(f"{path} is a single array: rename it to .npy")
        with archive:
            yield archive


def _member(path: Path, archive: Any, name: str) -> Any:
    try:
        return archive[name]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return f"{path} has Python objects, which would run code when read: save integers instead"
    return f"cannot read {path}: {error}"


def _checked_array(path: Path, name: str, array: Any) -> Any:
    if array.dtype.kind not in "iu":
        raise UsageError(f"{path}: {name} has the dtype {array.dtype}; token ids are integers")
    if array.ndim != 2:
        raise UsageError(f"{path}: {name} has the shape {list(array.shape)}; expected [n, length]")
    return array


def _rows(path: Path, ids: Any, mask: Any, limit: int | None) -> Iterator[TokenRow]:
    if ids.shape[1] == 0:
        return
    for number, row in enumerate(ids[:limit]):
        values = None if mask is None else mask[number].tolist()
        yield _checked_row(f"{path}, row {number}", row.tolist(), values)


# -- lines of JSON ---------------------------------------------------------------------


def _from_jsonl(path: Path, limit: int | None) -> Iterator[TokenRow]:
    with path.open("rb") as stream:
        lines = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
        for number, line in islice(lines, limit):
            yield _from_line(f"{path}, line {number}", line)


def _from_line(where: str, line: bytes) -> TokenRow:
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON ({error}): expected a list of ids, as [101, 102]") from None
    if isinstance(found, list):
        return _checked_row(where, found, None)
    if not isinstance(found, Mapping) or not isinstance(found.get(_IDS), list):
        raise UsageError(f"{where}: expected a list of ids, or an object with the list {_IDS!r}")
    if any(found.get(_TYPES) or ()):
        raise UsageError(_no_types(where))
    return _checked_row(where, found[_IDS], found.get(_MASK))


# -- every row -------------------------------------------------------------------------


def _checked_row(where: str, ids: list[Any], mask: Any) -> TokenRow:
    if not ids:
        raise UsageError(f"{where} is empty: expected at least one id")
    for token in ids:
        if type(token) is not int:
            raise UsageError(f"{where} has {json.dumps(token)[:40]}; token ids are integers")
        if token < 0:
            raise UsageError(f"{where} has {token}; token ids are 0 or larger (mark padding in {_MASK})")
    if mask is None:
        return TokenRow(tuple(ids))
    if not isinstance(mask, list) or len(mask) != len(ids):
        raise UsageError(f"{where}: {_MASK} must have one number for each of the {len(ids)} ids")
    if any(value not in (0, 1) for value in mask):
        raise UsageError(f"{where}: {_MASK} must be 1 at tokens and 0 at padding")
    if not any(mask):
        raise UsageError(f"{where} is all padding: its {_MASK} is 0 everywhere")
    return TokenRow(tuple(ids), None if all(mask) else tuple(int(value) for value in mask))


def _no_types(where: object) -> str:
    return f"{where}: {_TYPES} other than 0 cannot be given here; write a Python file (my_model.py:build)"


def separator_ids(*sources: Any) -> frozenset[int]:
    """The ids of the tokens that separate or end sentences, as tokenizers or configs say."""
    found: set[int] = set()
    for source in sources:
        for name in ("sep_token_id", "eos_token_id"):
            value = getattr(source, name, None)
            values = value if isinstance(value, (list, tuple)) else (value,)
            found |= {item for item in values if isinstance(item, int) and item >= 0}
    return frozenset(found)
