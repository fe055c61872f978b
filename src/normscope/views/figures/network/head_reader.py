"""The reader's view: every head on one sentence as a small map, one head large, token by token.

The page draws it (page/head_reader.js). Weights are bytes in steps of 1/254 and 255 for what is not
finite, in base64: a thousand heads then fit into a page.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from normscope.run import HeadRow, Run
from normscope.run_files.run_documents import read_artifact
from normscope.views.figures.network.head_map import (
    TYPES,
    has_several_modules,
    head_grid,
    head_key,
    head_name,
)
from normscope.views.page.formatting import number, percent, plural
from normscope.views.page.page_parts import FigureSpec
from normscope.words import printable

READER = "head-reader"
STEPS, NOT_FINITE = 254, 255
SHARES = 3  # of what a head attends to, the largest
NOTE = (
    "Each square is one head: rows attend to columns, the outline is its type. "
    "Choose a head, then hover or tap a token. "
    "The colour follows the square root of the weight, from 0 to 1; weights are rounded to 1/254."
)
WORD_STARTS = ("Ġ", "▁")  # how byte-pair and unigram tokenizers write the space before a word

Document = Mapping[str, Any]


def reader_figure(run: Run, rows: Sequence[HeadRow]) -> FigureSpec | None:
    """The heads of one step with their recorded attention; None if no attention was recorded."""
    documents = [_document(run, row) for row in rows]
    if not any(documents):
        return None
    return FigureSpec(
        READER,
        f"{plural(len(rows), 'head')} on one sentence, soft and saturated",
        [],
        note=NOTE,
        reader=_reader(rows, documents),
        wide=True,
    )


def _document(run: Run, row: HeadRow) -> Document | None:
    sql = "SELECT value FROM artifact WHERE kind = 'attention' AND key = ?"
    found = [
        read_artifact(run.path, "attention", row.example_key, value)
        for (value,) in run.query(sql, (row.example_key,))
    ]
    return next((document for document in found if document.get("soft")), None)


def _reader(rows: Sequence[HeadRow], documents: Sequence[Document | None]) -> dict[str, Any]:
    grid, several = head_grid(rows), has_several_modules(rows)
    lines = {row.module: i for i, line in enumerate(grid.rows) for row in line if row is not None}
    sentences: dict[tuple[Sequence[str], Sequence[str]], int] = {}
    heads = []
    for row, document in zip(rows, documents, strict=True):
        entry = _described(row, several) | {"row": lines[row.module], "column": row.head}
        if document:
            texts = _sentence(document)
            entry["sentence"] = sentences.setdefault(texts, len(sentences))
            entry |= {kind: packed(document[kind]) for kind in ("soft", "saturated")}
        heads.append(entry)
    found = Counter(row.type for row in rows)
    return {
        "rows": [printable(name) for name in grid.names],
        "columns": grid.width,
        "types": [(kind, found[kind]) for kind in TYPES if found[kind]],
        "first": head_key(_first(rows, documents)),
        "sentences": [{"queries": queries, "keys": keys} for queries, keys in sentences],
        "heads": heads,
    }


def _first(rows: Sequence[HeadRow], documents: Sequence[Document | None]) -> HeadRow:
    """The head to begin with: the clearest argmax head, or else the first one that has a map."""
    shown = [row for row, document in zip(rows, documents, strict=True) if document]
    return max(shown, key=lambda row: row.margin if row.type == "argmax" else -1.0)


def _sentence(document: Document) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens that attend, and those attended to, which are others in cross-attention."""
    tokens = document["tokens"]
    queries, keys = len(document["soft"]), len(document["soft"][0])
    return _names(tokens, queries), _names(document.get("key_tokens") or tokens, keys)


def _names(tokens: Sequence[str], size: int) -> tuple[str, ...]:
    """The first `size` tokens; positions without a token are numbered."""
    words = [_word(str(token)) for token in tokens[:size]]
    return (*words, *(f"#{i}" for i in range(len(words), size)))


def _word(token: str) -> str:
    text = f"·{token[1:]}" if token.startswith(WORD_STARTS) else token
    return printable(text) or "␣"


def packed(weights: Sequence[Sequence[float | None]]) -> str:
    """Weights as base64 bytes, query by query."""
    values = np.asarray(weights, dtype=np.float64)
    steps = np.rint(np.clip(np.nan_to_num(values), 0, 1) * STEPS)
    codes = np.where(np.isfinite(values), steps, NOT_FINITE).astype(np.uint8)
    return base64.b64encode(codes.tobytes()).decode()


# -- what is said about a head -------------------------------------------------------------


def _described(row: HeadRow, by_module: bool) -> dict[str, Any]:
    return {
        "key": head_key(row),
        "says": printable(f"{head_name(row, by_module)}, {row.type}"),
        "type": row.type if row.type in TYPES else "undecided",
        "module": printable(row.module),
        "facts": _facts(row),
        "attends": _attends(row.attends or {}),
    }


def _facts(row: HeadRow) -> list[tuple[str, str]]:
    facts = [("margin", number(row.margin, 2))]
    if row.converged is not None:
        facts.append(("converged", "yes" if row.converged else "no"))
    if row.settles_at is not None:
        facts.append(("settles at c =", "1, as trained" if row.settles_at == 1 else f"{row.settles_at:g}"))
    if row.unsettled is not None:
        facts.append(("unsettled queries", percent(row.unsettled)))
    facts += [
        ("positions, saturated", number(row.positions, 3)),
        ("effective, soft", number(row.effective, 3)),
    ]
    later = (("overlap", row.overlap), ("cosine of outputs", row.output))
    return facts + [(name, number(value, 3)) for name, value in later if value is not None]


def _attends(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the head attends to: its name, and the largest shares of each network with their intervals."""
    name = [("attends to", printable(_pattern(found["name"])))] if found.get("name") else []
    kinds = [(kind, found[kind]) for kind in ("soft", "saturated") if found.get(kind)]
    return name + [(kind, printable(_shares(shares))) for kind, shares in kinds]


def _shares(shares: Mapping[str, Sequence[float | None]]) -> str:
    known = [(pattern, values) for pattern, values in shares.items() if values and values[0] is not None]
    largest = sorted(known, key=lambda entry: -(entry[1][0] or 0.0))[:SHARES]
    return ", ".join(f"{_pattern(pattern)} {_with_interval(values)}" for pattern, values in largest)


def _with_interval(values: Sequence[float | None]) -> str:
    share, *interval = ("–" if value is None else f"{value:.2f}" for value in values)
    return f"{share} ({' to '.join(interval)})" if len(interval) == 2 else share


def _pattern(name: str) -> str:
    return str(name).replace("_", " ")
