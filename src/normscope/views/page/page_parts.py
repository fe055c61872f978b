"""The values a report is made of: figures, tables and sentences in sections, sections in stages, on one page.

A figure's traces and layout are plotly's JSON with one addition: a string that begins with "@"
names a colour of the theme (see palette.py). The page resolves it in the browser, so that one
file serves light and dark; `ns.plot` resolves it to the light theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from normscope.table import Value

Trace = dict[str, Any]


@dataclass(frozen=True)
class Button:
    """A button of a figure: it shows the traces whose `set` is its key.

    `axis` is the title of the y axis while they are shown; "" keeps the figure's own. `along` names what the
    x axis of a figure over steps shows then, if not steps.
    """

    key: str
    label: str
    axis: str = ""
    along: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """One figure; `title` states its finding, for a reader who reads only titles.

    `step_axis`: the x axis is the step, and can be linear, square-root or logarithmic.
    `log_y`: the y axis can be logarithmic. `buttons` switch between sets of traces.
    `click` names what a click on a point shows, from `details` (see behaviour.js);
    `linked` is the key of the figure whose details a click in this figure shows.
    `numbers` are the `columns` and `rows` of the table behind it, where they do not follow from the traces.
    `reader` is a reader's view of attention heads, in place of traces (see head_reader.js).
    """

    key: str
    title: str
    traces: Sequence[Trace]
    layout: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    height: int = 380
    step_axis: bool = False
    log_y: bool = False
    buttons: Sequence[Button] = ()
    click: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    linked: str = ""
    reader: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    wide: bool = False


@dataclass(frozen=True)
class TableSpec:
    """One table: numbers right-aligned, text left-aligned. A long table is `folded`; long cells `wrapped`.

    `links` are addresses, one for each row, that its first cell leads to.
    """

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    folded: bool = False
    marked: int | None = None  # index of the row that the text is about
    wrapped: bool = False
    links: Sequence[str] = ()


SectionPart = FigureSpec | TableSpec


def balanced(figures: Sequence[FigureSpec]) -> list[FigureSpec]:
    """Arrange figures two in a row; the last of an odd number is as wide as two."""
    if len(figures) % 2 == 0:
        return list(figures)
    return [*figures[:-1], replace(figures[-1], wide=True)]


@dataclass(frozen=True)
class AdviceLine:
    """One piece of advice: how urgent (act, watch, fine), the sentence, its confidence and its command."""

    severity: str
    sentence: str
    confidence: str
    command: str


@dataclass(frozen=True)
class Section:
    """A heading, its sentences, and the figures and tables that support them; of advice, its lines.

    `badge` is a verdict beside the heading, `command` what makes the section again, `short` its name among
    the links at the top. `made` says how its numbers were made, if not as the page's provenance says.
    """

    key: str
    title: str
    sentences: Sequence[str] = ()
    parts: Sequence[SectionPart] = ()
    advice: Sequence[AdviceLine] = ()
    note: str = ""
    badge: str = ""
    command: str = ""
    short: str = ""
    made: Mapping[str, str] = field(default_factory=dict)

    @property
    def figures(self) -> list[FigureSpec]:
        """The section's figures, in order."""
        return [part for part in self.parts if isinstance(part, FigureSpec)]

    @property
    def tables(self) -> list[TableSpec]:
        """The section's tables, in order."""
        return [part for part in self.parts if isinstance(part, TableSpec)]


@dataclass(frozen=True)
class Fact:
    """A number of the summary: its label, its value, and a qualification."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Doubts:
    """What speaks against a series: findings that are `sure` make it unsound, `hints` do not."""

    sure: Sequence[str] = ()
    hints: Sequence[str] = ()


@dataclass(frozen=True)
class Stage:
    """The report of one stage of training.

    `name` is "" when there is only one; `summary` are sentences, `facts` numbers beside them.
    `doubts` are shown before everything else. `labels` are the names of the checkpoints by step.
    `scope` says which norm is shown, `soundness` what is known about the checkpoints.
    """

    name: str
    summary: Sequence[str]
    facts: Sequence[Fact]
    sections: Sequence[Section]
    doubts: Doubts | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    scope: str = ""
    soundness: str = ""

    @property
    def first_advice(self) -> AdviceLine | None:
        """The most urgent advice, for the first screen."""
        lines = [line for section in self.sections for line in section.advice]
        return lines[0] if lines else None


@dataclass(frozen=True)
class Page:
    """A whole report; `lists` are what was left out, folded, beside the warnings."""

    title: str
    subject: str
    subtitle: str
    stages: Sequence[Stage]
    closing: Sequence[Section]
    warnings: Sequence[str] = ()
    lists: Sequence[TableSpec] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    home: str = ""
    """Of a served page: the address of the overview."""
    pending: bool = False
    """Whether it only stands for a page that is being made."""

    @property
    def figures(self) -> list[FigureSpec]:
        """Every figure of the page."""
        sections = [section for stage in self.stages for section in stage.sections]
        return [figure for section in [*sections, *self.closing] for figure in section.figures]
