"""What a service says about a work: the work itself, and which works it cites."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.literature.works import Work


@dataclass(frozen=True)
class KnownWork:
    """A work as one service knows it, the ids of works that it cites, and how many works cite it."""

    work: Work
    cites: tuple[str, ...] = ()
    cited_by: int | None = None


@dataclass(frozen=True)
class Neighbours:
    """The works around one work; `unread` counts citing works that were not asked for because of a limit."""

    references: tuple[KnownWork, ...] = ()
    citations: tuple[KnownWork, ...] = ()
    unread: int = 0


def unread(centre: KnownWork, got: int, limit: int) -> int:
    """How many citing works were not asked for: none, unless the limit was reached."""
    return max(0, (centre.cited_by or 0) - got) if got >= limit else 0
