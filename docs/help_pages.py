"""Write docs/commands.md: every command's help page, as the command prints it, and the JSON it answers.

    python docs/help_pages.py

A test compares the file with what this prints, so that no page grows old.
"""

import os
import subprocess
import sys
from pathlib import Path

from normscope.cli.app import COMMANDS

HERE = Path(__file__).parent
HEAD = """# Commands

Every command takes `--json` and then prints one JSON value on stdout (the fields are in [json.md](json.md));
progress goes to stderr, and only to a terminal. Exit codes: 0 the work is done, 1 it failed (or the series is
not sound), 2 the call was wrong. `normscope --debug COMMAND …` shows the traceback of an error.

This page is made by `python docs/help_pages.py`.
"""


def help_page(command: str) -> str:
    """What `normscope COMMAND --help` prints, a hundred columns wide."""
    words = [sys.executable, "-m", "normscope", command, "--help"]
    environment = os.environ | {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.replace("python -m normscope", "normscope").strip()


def page() -> str:
    """The whole file."""
    parts = [f"## {name}\n\n```text\n{help_page(name)}\n```\n" for name in COMMANDS]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    (HERE / "commands.md").write_text(page(), encoding="utf-8")
