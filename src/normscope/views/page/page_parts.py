"""What a report is made of: figures, tables and sentences in sections, sections in stages, on one page.

These are plain values. A figure's traces and layout are plotly's JSON with one
addition: a string that begins with "@" names a colour of the page's theme
(see palette.py), which the page resolves, so that light and dark are one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Trace = dict[str, Any]
Cell = str | int | float | None


@dataclass(frozen=True)
class Choice:
    """One button of a figure: shows the traces whose `set` is its key, and renames the y axis."""

    key: str
    label: str
    axis: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure; `title` says what it shows to a reader who only reads titles.

    `step_axis` gives it the linear, square-root and logarithmic step axis;
    `log_y` a logarithmic y axis; `choices` switch between sets of traces.
    `click` names what a click on a point shows, from `details` (see behaviour.js);
    `linked` is the key of the figure in whose details a click here is answered.
    """

    key: str
    title: str
    traces: Sequence[Trace]
    layout: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    height: int = 380
    step_axis: bool = False
    log_y: bool = False
    choices: Sequence[Choice] = ()
    click: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    linked: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Grid:
    """One table; numbers are set to the right, text to the left. A long one is folded."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False
    marked: int | None = None  # the row the text speaks of


Block = Figure | Grid


def balanced(figures: Sequence[Figure]) -> list[Figure]:
    """Figures that stand two in a row, the last of an odd number across both places."""
    if len(figures) % 2 == 0:
        return list(figures)
    return [*figures[:-1], replace(figures[-1], wide=True)]


@dataclass(frozen=True)
class Section:
    """A heading, the sentences that answer it, and what they rest on."""

    key: str
    title: str
    sentences: Sequence[str] = ()
    blocks: Sequence[Block] = ()

    @property
    def figures(self) -> list[Figure]:
        """The section's figures, in order."""
        return [block for block in self.blocks if isinstance(block, Figure)]

    @property
    def grids(self) -> list[Grid]:
        """The section's tables, in order."""
        return [block for block in self.blocks if isinstance(block, Grid)]


@dataclass(frozen=True)
class Fact:
    """A number worth a glance: what it is, its value, and what qualifies it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Stage:
    """Everything about one stage of training; `name` is "" when there is only one."""

    name: str
    summary: Sequence[str]
    facts: Sequence[Fact]
    sections: Sequence[Section]


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    subject: str
    subtitle: str
    stages: Sequence[Stage]
    closing: Sequence[Section]
    warnings: Sequence[str] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        """Every figure of the page."""
        parts = [section for stage in self.stages for section in stage.sections]
        return [figure for section in [*parts, *self.closing] for figure in section.figures]
