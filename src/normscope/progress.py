"""How long-running functions report progress, without knowing who shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, float, str], None]
"""Called with (done, total, note); done grows from 0 to total, in any unit."""


def silent(done: float, total: float, note: str) -> None:
    """Show nothing: the default where a function takes a `Progress`."""


Parts = Callable[[str, str], Progress]
"""Called with the name and the unit of a part of the work when it begins; returns what shows its progress."""


def named_parts(progress: Progress) -> Parts:
    """Show all parts of a work in one progress: each note begins with the name of its part."""

    def begin(name: str, unit: str) -> Progress:
        return lambda done, total, note: progress(done, total, f"{name}: {note}" if note else name)

    return begin
