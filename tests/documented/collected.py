"""Every command line of normscope in the README and the docs, as a reader would type it."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE = ("commands.md", "changelog.md")  # help pages are compared with the program; a changelog is history
LINE = re.compile(r"^(?:    |)[ ]*(?:\$ )?(normscope [a-z-][^\n]*)$", re.MULTILINE)
INLINE = re.compile(r"`(normscope [a-z]+ [^`…]+)`")
FENCED = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHELLS = ("console", "bash", "sh", "text", "")
INDENTED = re.compile(r"(?:^(?: {4,})\S.*\n)+", re.MULTILINE)


def pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def collected():
    """{command: the pages it is on}; comments and explanations beside a command are left out."""
    found = {}
    for page in pages():
        if page.name not in MADE:
            for command in commands_of(page.read_text("utf-8")):
                found.setdefault(command, []).append(page.name)
    return found


def commands_of(text):
    fenced = [block for language, block in FENCED.findall(text) if language in SHELLS]
    prose = FENCED.sub("", text)
    lines = [found for block in [*fenced, *INDENTED.findall(prose)] for found in LINE.findall(block)]
    inline = [each for each in INLINE.findall(prose) if "\n" not in each]
    return list(dict.fromkeys(map(_bare, [*lines, *inline])))


def _bare(line):
    """The command alone: what follows ` #`, or two spaces, explains it."""
    return re.split(r"\s{2,}|\s#", line, maxsplit=1)[0].strip()


def words(command):
    return shlex.split(command)[1:]
