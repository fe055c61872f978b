"""Reading the documents of trials: which match, what they hold, at which step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def matches(document: Document, where: Mapping[str, Any]) -> bool:
    """Whether a trial has these settings; a list means any of its values."""
    changes = document["changes"]
    return all(
        plain_setting(changes.get(name)) in (value if isinstance(value, list) else [value])
        for name, value in where.items()
    )


def plain_setting(value: Any) -> Any:
    """A setting as TOML can say it: None is "none"."""
    return "none" if value is None else value


def by_seed(documents: Sequence[Document]) -> dict[int, list[Document]]:
    """Group trials by their seed; those without one belong to seed 0."""
    found: dict[int, list[Document]] = {}
    for document in documents:
        found.setdefault(int(document["changes"].get("seed", 0)), []).append(document)
    return found


def field_value(document: Document, path: str) -> Any:
    """The entry at a dotted path, such as `evaluation.valid_accuracy`; None if there is none."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def mean(values: Sequence[float | None]) -> float:
    """The mean; NaN if a value is missing, because a mean of fewer is another quantity."""
    kept = [value for value in values if value is not None]
    return math.fsum(kept) / len(kept) if kept and len(kept) == len(values) else math.nan


def last_layer(rows: Rows) -> int:
    """The number of the last layer among rows of saturation."""
    return max((int(row["layer"]) for row in rows), default=-1)


def saturation_curve(document: Document, layer: str) -> list[tuple[int, float]]:
    """Saturation at each measured step: of the `last` layer, or the mean over `all` but the embedding."""
    rows: Rows = document.get("saturation") or []
    last = last_layer(rows)
    chosen = [row for row in rows if (row["layer"] == last if layer == "last" else row["layer"] > 0)]
    steps = sorted({int(row["step"]) for row in chosen})
    return [(step, mean([row["cosine"] for row in chosen if row["step"] == step])) for step in steps]


def heads_at(document: Document, when: str) -> Rows:
    """The heads at the first (`start`) or the last (`end`) measured step."""
    rows: Rows = document.get("heads") or []
    steps = sorted({int(row["step"]) for row in rows})
    if not steps:
        return []
    wanted = steps[0] if when == "start" else steps[-1]
    return [row for row in rows if row["step"] == wanted]
