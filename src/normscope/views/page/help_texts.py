"""The text behind each "?" of a page, by the key of its section or figure; the texts are in help.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup

from normscope.views.page.offline_file import resource

_FAMILIES = ("scalar", "measure", "claim", "run", "last")  # keys that begin so have one entry


@dataclass(frozen=True)
class Help:
    """What something is, how to read it, when not to believe it; and its formula, as HTML, if it has one."""

    what: str
    read: str
    doubt: str
    formula: str = ""

    @property
    def formula_html(self) -> Markup:
        """The formula: it comes from help.toml, never from a run file."""
        return Markup(self.formula)


@cache
def help_entries(kind: str) -> dict[str, Help]:
    """All entries of "sections" or "figures"."""
    return {key: Help(**entry) for key, entry in tomllib.loads(resource("help.toml"))[kind].items()}


def section_help(key: str, badge: str = "") -> Help | None:
    """The help of a section; one with a verdict is a claim."""
    return help_entries("sections").get("claim" if badge else key)


def figure_help(key: str) -> Help | None:
    """The help of a figure; the numbers of several of a kind, and the names of scalars, do not count."""
    if key.endswith("-directions"):  # of growth, of updates
        key = "directions"
    family = next((name for name in _FAMILIES if key.startswith(f"{name}-")), key)
    entries = help_entries("figures")
    return entries.get(re.sub(r"-\d+$", "", key)) or entries.get(family)
