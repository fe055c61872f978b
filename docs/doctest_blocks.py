"""Griffe extension: show the `>>>` examples of docstrings as code.

Markdown would read `>>>` as three nested quotations. Each example, up to the next empty line, becomes a
fenced block.
"""

from __future__ import annotations

from typing import Any

import griffe


class DoctestBlocks(griffe.Extension):
    """Fence the examples of every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Put each run of lines that begins with `>>>` and ends before an empty line between fences."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            lines.extend(["", "```pycon"])
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line.lstrip() if inside and line.lstrip().startswith((">>>", "...")) else line)
    return "\n".join([*lines, *(["```"] if inside else [])])
