"""From a Page to one HTML file that loads nothing else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from normscope._version import __version__
from normscope.table import Value
from normscope.views.page.formatting import count, label, number
from normscope.views.page.help_texts import figure_help, section_help
from normscope.views.page.offline_file import check_place, embedded, policy, resource, write_html
from normscope.views.page.packed_text import packed, packed_plotly
from normscope.views.page.page_parts import FigureSpec, Page, TableSpec
from normscope.words import printable

FIRST = ("theme", "unpack", "start")
SCRIPTS = ("head_reader", "figure_table", "figure_files", "behaviour")
NUMERIC = re.compile(r"^((?:under )?[−+-]?[\d.,]+(·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?( %)?|–|∞|−∞)$")


def render(page: Page, follow: str = "") -> str:
    """The page as HTML, with plotly.js, the style and the data inside.

    `follow` is a script that renews the page from the server that it came from; a page without one makes
    no requests.
    """
    plotly, plotly_packed = packed_plotly()
    first = "".join(resource(f"{name}.js") for name in FIRST)
    later = "".join(resource(f"{name}.js") for name in SCRIPTS) + follow
    return _html(
        page,
        style=Markup(resource("style.css")),
        figures=Markup(packed(embedded(drawn(page)))),
        policy=policy([first, plotly, later], requests=bool(follow)),
        plotly=Markup(plotly_packed),
        first=Markup(first),
        scripts=Markup(packed(later)),
        served=bool(follow),
    )


def render_content(page: Page) -> str:
    """The page without style, scripts and data: what a served page takes its content from."""
    empty = dict.fromkeys(("style", "figures", "policy", "plotly", "first", "scripts"), "")
    return _html(page, **empty, served=True)


def drawn(page: Page) -> dict[str, Any]:
    """The data of every figure, and the labels of checkpoints."""
    return {"figures": _specs(page), "labels": _labels(page)}


def _html(page: Page, **parts: object) -> str:
    template = _environment().from_string(resource("template.html"))
    return template.render(page=page, version=__version__, **parts)


def write(page: Page, output: str | os.PathLike[str]) -> Path:
    """Render the page and write it completely or not at all."""
    check_place(output)
    return write_html(render(page), output)


def _specs(page: Page) -> dict[str, Any]:
    """Every figure under the key that the template gives its element."""
    staged = {
        f"s{i}-{figure.key}": _spec(figure)
        for i, stage in enumerate(page.stages)
        for section in stage.sections
        for figure in section.figures
    }
    return staged | {figure.key: _spec(figure) for section in page.closing for figure in section.figures}


def _labels(page: Page) -> dict[int, dict[str, str]]:
    """The names of the checkpoints by step, for each stage that has them."""
    return {
        i: {str(step): label(name) for step, name in stage.labels.items()}
        for i, stage in enumerate(page.stages)
        if stage.labels
    }


def _spec(figure: FigureSpec) -> dict[str, Any]:
    kept = asdict(figure)
    for in_html in ("key", "title", "note", "click", "wide"):
        del kept[in_html]
    return {name: value for name, value in kept.items() if value}


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.globals |= {"section_help": section_help, "figure_help": figure_help}
    environment.filters |= {"cell": _cell, "broken": _broken, "alignments": _alignments}
    return environment


def _cell(value: Value) -> str:
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    return "–" if value is None else str(value)


def _broken(text: str) -> Markup:
    """A cell that may go on in the next line after a comma, such as lr=0.01,weight_decay=0.1."""
    return Markup(",<wbr>").join(text.split(","))


def _alignments(table: TableSpec) -> list[str]:
    return [_align(table.rows, column) for column in range(len(table.columns))]


def _align(rows: Sequence[Sequence[Value]], column: int) -> str:
    """Right for a column of numbers, so that their digits line up."""
    return "right" if all(NUMERIC.match(_cell(row[column])) for row in rows[:50]) else "left"


LONGEST_VALUE = 2000


def provenance(meta: Mapping[str, Any], **more: str) -> dict[str, str]:
    """How a run was made, one line per entry."""
    return {printable(key): printable(_short(_line(value))) for key, value in meta.items()} | more


def _line(value: Any) -> str:
    """A value as text; nested entries as "name value, name value", those of a list one after the other."""
    if isinstance(value, list):
        return ", ".join(map(_line, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_line(item)}" for name, item in value.items() if item is not None)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} …"
