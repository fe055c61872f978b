"""How names are ordered, listed and shown to people."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

NaturalKey = tuple[tuple[int, int, str], ...]
OUTSIDE = "outside"  # the group of the tensors that belong to no layer


def natural_key(name: str) -> NaturalKey:
    """Sort key that compares numbers inside names as numbers: step2 sorts before step10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((0, int(p), "") if p[0] in "0123456789" and len(p) < 4000 else (1, 0, p) for p in parts)


def by_layer(names: Iterable[str]) -> list[str]:
    """Sort the names of groups in natural order, with `outside` (parameters outside the layers) last.

    >>> by_layer(["outside", "10", "02"])
    ['02', '10', 'outside']
    """
    return sorted(names, key=lambda name: (name == OUTSIDE, natural_key(name)))


def joined(names: Iterable[str]) -> str:
    """Join names with commas and a final "and".

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    kept = list(names)
    return " and ".join([", ".join(kept[:-1]), kept[-1]]) if len(kept) > 1 else "".join(kept)


def some(names: Collection[object], most: int = 3) -> str:
    """List the first `most` names and count the others.

    >>> some(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    shown = [str(name) for name in names][:most]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def sentence(note: str) -> str:
    """A note as a sentence: with a capital and a full stop. A Greek letter stays as it is.

    >>> sentence("thinned from 900 to 400 points"), sentence("ρ² fell")
    ('Thinned from 900 to 400 points.', 'ρ² fell.')
    """
    first = note[:1].upper() if note[:1].isascii() else note[:1]
    return f"{first}{note[1:].rstrip('.')}."


def printable(text: str) -> str:
    r"""Escape control characters, so that a name from a file cannot control a terminal or hide in a page.

    >>> printable("a\nb")
    'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def duration(seconds: float) -> str:
    """A length of time in two units at most.

    >>> duration(0.2), duration(75), duration(10_000), duration(200_000)
    ('under a second', '1 min 15 s', '2 h 46 min', '2 days 7 h')
    """
    if seconds < 1:
        return "under a second"
    units = (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(i for i, (_, size) in enumerate(units) if seconds >= size)
    parts, left = [], int(seconds)
    for name, size in units[first : first + 2]:
        count, left = divmod(left, size)
        parts += [f"{count} {'day' if (name, count) == ('days', 1) else name}"] if count else []
    return " ".join(parts)
