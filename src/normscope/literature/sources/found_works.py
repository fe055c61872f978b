"""Works as they were found, before they are merged; and how far to look for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from normscope.literature.works import Work


@dataclass
class Found:
    """Works before they are merged, pairs (citing id, cited id), and notes."""

    centre: list[Work] = field(default_factory=list)
    references: list[Work] = field(default_factory=list)
    citations: list[Work] = field(default_factory=list)
    further: list[Work] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def works(self) -> list[Work]:
        """All works, the centre first."""
        return [*self.centre, *self.references, *self.citations, *self.further]

    def joined(self, others: Found) -> Found:
        """These works and others around the same centre; what both say is taken from these."""
        return Found(
            self.centre + others.centre,
            self.references + others.references,
            self.citations + others.citations,
            self.further + others.further,
            self.edges + others.edges,
            self.notes + others.notes,
        )


@dataclass(frozen=True)
class Reach:
    """How far to look: works two citations away too (`depth` 2), and the most works in all."""

    depth: int = 1
    most: int = 500
