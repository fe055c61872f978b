"""How wide the columns of a table are in a terminal: text may be wrapped, a number is shown whole or not."""

from __future__ import annotations

import re
from collections.abc import Sequence

GAP = 2  # between columns
NARROWEST = 14  # of a column of text that is wrapped


def column_widths(columns: Sequence[Sequence[str]], is_text: Sequence[bool], width: int) -> list[int]:
    """The width of each column so that the table is no wider than `width`; 0 for one that is left out.

    `columns` have their names first. Text is wrapped first, the widest column most; then whole columns are
    left out, the last one first, but never the first, which says what a row is.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in columns]
    least = [
        min(w, max(NARROWEST, _longest_number(column))) if text else w
        for w, text, column in zip(widths, is_text, columns, strict=True)
    ]
    count = len(widths)
    while count > 1 and _table_width(least[:count]) > width:
        count -= 1
    found = widths[:count]
    while (excess := _table_width(found) - width) > 0:
        i = max(range(count), key=lambda k: found[k] - least[k])
        if found[i] <= least[i]:
            break
        found[i] -= max(1, min(excess, found[i] - least[i]) // 2)
    return [*found, *(0 for _ in widths[count:])]


def _longest_number(column: Sequence[str]) -> int:
    """The length of the longest word that begins like a number: it must stay in one line."""
    words = (word for cell in column for word in cell.split())
    return max((len(word) for word in words if re.match(r"[-−+]?\d", word)), default=0)


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
