"""How long-running functions report progress, without knowing who shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, float, str], None]
"""Called with (done, total, note); done grows from 0 to total, in any unit."""


def silent(done: float, total: float, note: str) -> None:
    """Show nothing: the default where a function takes a `Progress`."""
