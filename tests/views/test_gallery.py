"""The gallery has every figure that normscope draws, every section of its pages, and pictures that exist."""

import ast
import re
from pathlib import Path

import pytest

import normscope
from normscope.run import Run
from normscope.views.plotting.plot import _drawing

from .growing import write_growing
from .results import of_lab, of_network, of_theory

VIEWS = Path(normscope.__file__).parent / "views"
DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "gallery.md").read_text("utf-8")
NAMES = re.findall(r"`([^`]+)`", TEXT)
MOST_BYTES = 1_500_000
ENDINGS = (".png", ".svg")


def on_the_page(key):
    """Whether the name stands there, or one that ends in … and begins it."""
    return key in NAMES or any(name.endswith("…") and key.startswith(name[:-1]) for name in NAMES)


def drawn(results):
    """Every name that ns.plot knows for these results."""
    for result in results:
        for figure in _drawing(result).figures:
            yield figure.key
            yield from (button.key for button in figure.buttons)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    found = {**of_theory(folder), **of_network(), **of_lab(folder)}
    found.pop("advice")
    grown = Run(write_growing(folder / "growing.db"))
    yield [*found.values(), grown]
    grown.close()
    found["run"].close()


def test_every_name_that_plot_knows_is_there(results):
    names = set(drawn(results))
    assert {"growth", "effects", "heads", "settles_at", "σ₁", "maps", "automata"} <= names
    assert {name for name in names if not on_the_page(name)} == set()


def called(function):
    """The calls of a function in the sources of the views."""
    for path in sorted(VIEWS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == function:
                yield node


def first_words(node, place):
    """A literal argument, or how a formatted one begins."""
    value = node.args[place] if len(node.args) > place else None
    if isinstance(value, ast.JoinedStr):
        value = value.values[0]
    return value.value if isinstance(value, ast.Constant) else None


def test_figures_that_only_pages_have_are_there():
    keys = {first_words(node, 0) for node in called("FigureSpec")} - {None}
    assert len(keys) > 30
    assert {key for key in keys if not on_the_page(key) and not on_the_page(f"{key}…")} == set()


def test_every_section_of_the_pages_is_there():
    titles = {first_words(node, 1) for node in called("Section")} - {None}
    assert len(titles) > 15
    assert {title for title in titles if title not in TEXT} == set()


def test_pictures_exist_have_words_and_are_small():
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", TEXT)
    assert len(shown) > 15 and all(len(words) > 15 for words, _ in shown)
    assert all((DOCS / target).is_file() for _, target in shown)
    made = {path.relative_to(DOCS).as_posix() for path in (DOCS / "images/gallery").iterdir()}
    assert made <= {target for _, target in shown}
    sizes = [(DOCS / target).stat().st_size for _, target in shown]
    assert sum(sizes) < MOST_BYTES
