"""MkDocs hook: put the public names where an API page asks for them.

A page asks with a line `public: normscope.weights normscope.checkpoints`; it gets the documentation of
every name in `normscope.__all__` that is defined in one of these packages, functions before classes.
`normscope` means the modules directly in it, such as `normscope.run`. A new public name therefore
appears without an edit, on the page of its package.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_REQUEST = re.compile(r"^public: (.+)$", re.MULTILINE)


def homes() -> dict[str, str]:
    """Return the module that defines each public name, read from the source without importing it."""
    package = griffe.load("normscope", search_paths=["src"], submodules=False)
    exported = [str(name) for name in package.exports or ()]
    members = {name: package.members[name] for name in exported if not name.startswith("__")}
    return {name: member.target_path for name, member in members.items() if isinstance(member, griffe.Alias)}


def defined_in(packages: list[str]) -> list[str]:
    """Return the public names defined in one of the packages, functions before classes."""
    names = [name for name, home in homes().items() if any(_belongs(home, each) for each in packages)]
    return sorted(names, key=lambda name: (name[0].isupper(), name))


def _belongs(home: str, package: str) -> bool:
    directly = package == "normscope" and home.count(".") == 2  # normscope.run.Run
    return directly or (package != "normscope" and home.startswith(f"{package}."))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each request by one mkdocstrings directive per name."""
    return _REQUEST.sub(lambda found: _directives(found[1].split()), markdown)


def _directives(packages: list[str]) -> str:
    return "\n\n".join(f"::: normscope.{name}" for name in defined_in(packages))
