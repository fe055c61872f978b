"""JSON headers from untrusted files: limited in size, depth and number of values."""

from __future__ import annotations

import json
from typing import Any

from normscope.errors import CorruptCheckpoint

HEADER_LIMIT = 100_000_000
"""Bytes; the reference implementation of safetensors has the same limit."""

# 100 MB of brackets or commas would become gigabytes of Python objects; a real header of
# 100,000 tensors has 300,000 brackets and 500,000 commas.
_BRACKETS, _COMMAS, _WIDE = 600_000, 2_000_000, 25_000_000


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `data`; anything else, or a repeated key, is a CorruptCheckpoint."""
    _check_size(data, where)
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(
            f"{where} is not valid JSON ({_reason(error)}). Copy or save it again."
        ) from None
    if not isinstance(value, dict):
        raise CorruptCheckpoint(f"{where} should be a JSON object, but is a {type(value).__name__}.")
    return value


def _check_size(data: bytes, where: str) -> None:
    brackets = data.count(b"[") + data.count(b"{")
    wide = len(data) > _WIDE and not data.isascii()
    if len(data) > HEADER_LIMIT or brackets > _BRACKETS or data.count(b",") > _COMMAS or wide:
        raise CorruptCheckpoint(
            f"{where} is too large: {len(data):,} bytes with {brackets:,} brackets "
            f"(limit {HEADER_LIMIT:,} bytes with {_BRACKETS:,} brackets)."
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
