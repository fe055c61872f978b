"""JSON answers: parsed, and read without trusting that a field is there or of its kind."""

from __future__ import annotations

import json
from typing import Any

from normscope.literature.sources.service import Unreadable

Document = dict[str, Any]


def json_object(body: bytes) -> Document:
    """The object that an answer consists of."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the answer is not JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise Unreadable("the answer is not a JSON object")
    return found


def inner(document: Document, *names: str) -> Document:
    """The object inside an object; empty if there is none."""
    found: Any = document
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def objects(document: Document, name: str) -> list[Document]:
    """The objects in a list; empty if the field is null or missing."""
    found = document.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(document: Document, name: str) -> list[str]:
    """The texts in a list."""
    found = document.get(name)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def text(document: Document, name: str) -> str | None:
    """A text; None for anything else."""
    found = document.get(name)
    return found if isinstance(found, str) else None


def whole(document: Document, name: str) -> int | None:
    """An integer; None for anything else."""
    found = document.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
