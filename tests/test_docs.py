"""The documentation says what the software does."""

import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.cli.app import COMMANDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_help_pages_are_current():
    made = runpy.run_path(str(DOCS / "help_pages.py"))
    assert (DOCS / "commands.md").read_text("utf-8") == made["page"](), "run: python docs/help_pages.py"


def test_every_command_has_its_json_documented():
    pages = "\n".join(path.read_text("utf-8") for path in DOCS.glob("*.md"))
    for name in COMMANDS:
        assert f"normscope {name}" in pages
        assert f"`{name}`" in pages or f"## {name}" in pages


@pytest.mark.parametrize(
    "path", [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_readme_commands_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    for name in re.findall(r"^\$ normscope (\w+)", text, re.MULTILINE):
        assert name in COMMANDS


def test_readme_sessions_really_print_this():
    text = (ROOT / "README.md").read_text("utf-8")
    for session in re.findall(r"```console\n(\$ normscope fit .*?)```", text, re.DOTALL):
        command, expected = session.split("\n", 1)
        words = [sys.executable, "-m", *command.removeprefix("$ ").split()]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()
    examples = doctest.DocTestParser().get_doctest(text, {}, "README", None, None)
    assert len(examples.examples) > 0
    assert doctest.DocTestRunner().run(examples).failed == 0
