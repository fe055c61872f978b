"""The documentation site builds without a warning, is complete, and asks nobody for anything."""

import doctest
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import normscope

ROOT = Path(__file__).parents[2]
NEWCOMERS_ORDER = [
    *("index", "install", "why-norms-grow", "gallery", "coming-from"),
    *("formats", "counted", "laws", "advice", "report", "monitor", "spectra", "saturation"),
    *("audit", "lab", "engines"),
    *("security", "replication", "literature"),
    *("commands", "json", "messages", "api/index"),
    *("extending", "architecture", "benchmarks", "changelog"),
]

GENERATED = {"messages"}  # by docs/message_list.py, when the site is built


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """Collects what a page loads by itself, not what it links to."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(found.get("src") or "")
        elif tag == "link" and found.get("rel") not in ("canonical", "next", "prev", "edit"):
            self.addresses.append(found.get("href") or "")


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20 and not list(site.rglob("*.py"))
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text("utf-8"))
        assert [each for each in loaded.addresses if re.match(r"(https?:)?//", each)] == [], page.name


@pytest.mark.slow
def test_every_public_name_is_documented_once(site):
    anchors = [
        name
        for page in (site / "api").rglob("*.html")
        for name in re.findall(r'<h2 id="normscope\.(\w+)"', page.read_text("utf-8"))
    ]
    public = [name for name in normscope.__all__ if not name.startswith("__")]
    assert sorted(anchors) == sorted(public), "a package without an API page? see docs/api_names.py"


@pytest.mark.slow
def test_examples_are_shown_as_code(site):
    page = (site / "api/theory/index.html").read_text("utf-8")
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page
    assert "<blockquote>" not in page


def test_the_first_page_prints_what_it_says():
    text = (ROOT / "docs/index.md").read_text("utf-8").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, "index.md", None, None)
    assert len(examples.examples) > 0
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_pages_come_in_the_order_a_newcomer_follows():
    listed = re.findall(r"[:-] ([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert [name for name in listed if not name.startswith("api/") or name == "api/index"] == NEWCOMERS_ORDER
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} == set(NEWCOMERS_ORDER) - {
        "api/index",
        *GENERATED,
    }
