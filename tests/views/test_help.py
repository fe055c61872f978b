"""Every section and figure that a page can have has its help, every help is used, and a page shows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import normscope
from normscope.views.page.help_texts import figure_help, help_entries, section_help
from normscope.views.reports.report import report

from .networks import write_network, write_sweep

VIEWS = Path(normscope.__file__).parent / "views"
# Figures that only ns.plot draws, which has no "?".
NOT_ON_PAGES = {"backtest", "values", "findings", "degree", "look-ahead"}
NAMED_ELSEWHERE = {"layers", "roles"}  # f"{by}s"
ALWAYS_THERE = {"provenance", "claim"}  # the template's own section, and those of a replication


def keys(call):
    """The literal first arguments of all calls of `call` in the package; of an f-string its beginning."""
    for path in VIEWS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == call and node.args:
                first = node.args[0]
                if isinstance(first, ast.JoinedStr):
                    first = first.values[0]
                if isinstance(first, ast.Constant):
                    yield str(first.value).rstrip("-")


def test_every_section_has_help_and_no_help_is_unused():
    assert {*keys("Section"), *ALWAYS_THERE} == set(help_entries("sections"))


def test_every_figure_has_help_and_no_help_is_unused():
    constants = {"effects", "effects-norm", "head-reader", "measure", "cosine", "alignment"}
    constants |= {"heads-first", "heads-last"}  # passed on as variables
    expected = {*keys("FigureSpec"), *NAMED_ELSEWHERE, *constants} - NOT_ON_PAGES
    assert expected == set(help_entries("figures"))


def test_a_page_has_help_for_every_heading(written, tmp_path):
    pages = [written, report(write_network(tmp_path / "n.db"), tmp_path / "n.html")]
    pages.append(report(write_sweep(tmp_path / "grid"), tmp_path / "grid.html"))
    for page in pages:
        body = page.read_text("utf-8").partition("<main")[2].partition("</main>")[0]
        asked = re.findall(r'data-help="([^"]+)"', body)
        sections = len(re.findall(r"<section ", body))
        assert len(asked) == sections + body.count("data-figure=")
        assert sorted(asked) == sorted(set(asked)) == sorted(re.findall(r'class="help" id="([^"]+)"', body))


@pytest.mark.parametrize("kind", ["sections", "figures"])
def test_texts_are_short_sentences_and_formulas_have_only_sub_and_sup(kind):
    for key, entry in help_entries(kind).items():
        for text in (entry.what, entry.read, entry.doubt):
            assert text[0].isupper() or not text[0].isalpha(), key
            assert text.endswith(".") and 20 < len(text) < 260, key
        assert set(re.findall(r"<(/?\w+)", entry.formula)) <= {"sub", "/sub", "sup", "/sup"}
        assert entry.formula.count("<sub>") == entry.formula.count("</sub>")


def test_keys_with_numbers_and_names_share_an_entry():
    assert figure_help("change-3") == figure_help("change-0") is not None
    assert figure_help("scalar-loss") is figure_help("scalar-lr") is not None
    assert section_help("whatever", badge="confirmed") is help_entries("sections")["claim"]
    assert figure_help("no-such-figure") is None
