"""Write docs/commands.md: the help page of every command, as the command prints it.

    python docs/help_pages.py

A test fails if the file is out of date.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HEAD = """# Commands

Every command takes `--json` and then prints one JSON value on stdout (the fields are explained in
[json.md](json.md)). Progress is shown on stderr, if that is a terminal. An option that would have no effect
is an error. `normscope --debug COMMAND …` shows the traceback of an error; the site lists every message.

| exit code | meaning |
|---|---|
| 0 | the work is done |
| 1 | the work failed, or `audit` found the series not sound |
| 2 | the call was wrong: an unknown or unused option, a missing file, a package that is not installed |
| 130 | interrupted with Ctrl-C |

`normscope --install-completion` makes your shell complete commands, options and their values.

This page is made by `python docs/help_pages.py`.
"""


PRINT = """
import contextlib, io, json, sys
from normscope.cli.app import COMMANDS, main

pages = {}
for name in COMMANDS:
    sys.argv = ["normscope", name, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main()
    pages[name] = printed.getvalue().strip()
print(json.dumps(pages))
"""


def help_pages() -> dict[str, str]:
    """Return what `normscope COMMAND --help` prints for each command, a hundred columns wide.

    One process prints them all; a process of its own, because the width is read when typer is imported.
    """
    environment = os.environ | {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    words = [sys.executable, "-c", PRINT]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def page() -> str:
    """Return the whole page."""
    parts = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in help_pages().items()]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    (HERE / "commands.md").write_text(page(), encoding="utf-8")
