"""Text from elsewhere, made safe to show: no control characters, no markup, no endless lines."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any

from normscope.literature.latex_text import plain_text

LONGEST_TITLE, LONGEST_NAME, LONGEST_ABSTRACT = 1_000, 200, 20_000  # characters
MOST_AUTHORS = 1_000

# Inline markup of publishers: italics, indices, small capitals, paragraphs, MathML.
_MARKUP = re.compile(r"</?(?:jats:|mml:|m:)?(?:i|b|em|strong|sub|sup|scp|sc|tt|u|p|span|title|sec|math|mi|mn|mo|mrow|mtext|msub|msup)(?:\s[^<>]*)?/?>", re.IGNORECASE)  # fmt: skip  # noqa: E501
# "Abstract" before an abstract, but not in "Abstract interpretation is …".
_HEADING = re.compile(
    r"^(?i:abstract)(?:[:.]\s+|\s+(?=(?:We|This|The|In|Here|Background|Objective|Purpose)\b))"
)
# Characters that reorder the text around them, or that nobody sees.
_UNSEEN = re.compile(r"[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def clean(value: Any, longest: int = LONGEST_NAME) -> str | None:
    r"""A text on one line, without control characters and inline markup; None for anything but text.

    >>> clean("On <i>E. coli</i> &amp;\n\x1b[31m others\u202e"), clean(None), clean("  ")
    ('On E. coli & [31m others', None, None)
    """
    if not isinstance(value, str):
        return None
    text = html.unescape(value[: 4 * longest]).encode("utf-8", "replace").decode()  # no lone surrogates
    text = _UNSEEN.sub("", _MARKUP.sub("", text))
    if not text.isprintable():
        text = "".join(c if unicodedata.category(c) != "Cc" else " " if c.isspace() else "" for c in text)
    line = " ".join(text.split())
    return (line if len(line) <= longest else f"{line[: longest - 1]}…") or None


def clean_title(value: Any) -> str | None:
    """A title without LaTeX."""
    text = clean(value, LONGEST_TITLE)
    return plain_text(text) or None if text else None


def clean_abstract(value: Any) -> str | None:
    """An abstract on one line; its LaTeX stays, and so do sentences."""
    text = clean(value, LONGEST_ABSTRACT)
    return _HEADING.sub("", text) if text else None


def clean_names(values: Any) -> tuple[str, ...]:
    """The names of authors, without those that are empty."""
    names = values if isinstance(values, list | tuple) else ()
    return tuple(name for value in names[:MOST_AUTHORS] if (name := clean(value)))


def clean_year(value: Any) -> int | None:
    """A year between 1000 and 2999, from a number or from a date such as 2021-03-04."""
    found = re.match(r"\s*([12]\d{3})(?!\d)", str(value)) if isinstance(value, int | str) else None
    return int(found[1]) if found else None
