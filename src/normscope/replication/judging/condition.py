"""Conditions of a verdict, as text: `corrected.last.low >= 0.99`, `released.mean > corrected.mean + 0.1`.

A side is a number, or COLUMN.NUMBER with an end of its interval: `.value` (the default), `.low` or `.high`; a
number may be added to it. A condition about something that was not measured is neither true nor false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from normscope.errors import UsageError
from normscope.replication.judging.seed_interval import Estimate

Measured = Mapping[str, Mapping[str, Estimate]]
"""Column (paper, released, corrected) → name of a number → its estimate."""

COLUMNS = ("paper", "released", "corrected")
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
ENDS = ("value", "low", "high")
CONDITION = re.compile(r"^(.+?)\s*(>=|<=|>|<)\s*(.+)$")
REFERENCE = re.compile(
    rf"^({'|'.join(COLUMNS)})\.([a-z][a-z0-9_]*?)(?:\.({'|'.join(ENDS)}))?(?:\s*([+-])\s*([0-9.eE+-]+))?$"
)


@dataclass(frozen=True)
class Side:
    """A number, or a reference to a measured one with something added."""

    added: float
    column: str | None = None
    name: str = ""
    end: str = "value"

    def value(self, measured: Measured) -> float | None:
        """Return what the side is worth; None if it was not measured."""
        if self.column is None:
            return self.added
        estimate = measured.get(self.column, {}).get(self.name)
        found: float | None = getattr(estimate, self.end) if estimate else None
        return None if found is None else found + self.added


@dataclass(frozen=True)
class Condition:
    """A comparison of two sides, and the text it was parsed from."""

    text: str
    left: Side
    comparison: str
    right: Side

    def holds(self, measured: Measured) -> bool | None:
        """Return whether the condition holds; None if one side was not measured."""
        left, right = self.left.value(measured), self.right.value(measured)
        return None if left is None or right is None else COMPARISONS[self.comparison](left, right)

    @property
    def references(self) -> list[Side]:
        """The sides that refer to measured numbers."""
        return [side for side in (self.left, self.right) if side.column is not None]


def parse_condition(text: str) -> Condition:
    """Parse one condition; the error names the part that is not understood."""
    match = CONDITION.match(text.strip())
    if not match:
        raise UsageError(f"expected a condition such as corrected.last.low >= 0.99, got {text!r}")
    return Condition(text, _side(match[1], text), match[2], _side(match[3], text))


def _side(part: str, text: str) -> Side:
    try:
        return Side(float(part))
    except ValueError:
        match = REFERENCE.match(part.strip())
    if not match:
        raise UsageError(
            f"{part.strip()!r} in the condition {text!r} is neither a number nor "
            f"COLUMN.NUMBER(.low|.high) with a column among {', '.join(COLUMNS)}"
        )
    column, name, end, sign, added = match.groups()
    return Side(float(f"{sign}{added}") if sign else 0.0, column, name, end or "value")
