"""The documentation says what the software does."""

import re
import runpy
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
