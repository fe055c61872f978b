"""MkDocs hook: the page messages.md, every message that the program can print as an error or a warning.

    python docs/message_list.py

prints the page. It is made from the source: every call of one of our error classes, and of `warnings.warn`.
What is filled in when the message is printed stands as ⟨name⟩.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src" / "normscope"
BASE = "NormscopeError"
HEAD = """# Every message

What normscope says when a call was wrong, when work failed, and when it warns, by the folder of the source
that says it. What is filled in is written ⟨like this⟩; of alternatives, all are written ⟨one | other⟩. An
error is printed as one line, and the exit code is 2 for a wrong call and 1 for failed work
(see [the commands](commands.md)). Most errors can be mended by what the message says last.

This page is made from the source by `docs/message_list.py`.
"""
SAYING_THE_SAME = {
    "printable",
    "some",
    "joined",
    "str",
    "repr",
    "count",
    "sorted",
    "list",
    "join",
    "shortened",
}


@dataclass(frozen=True)
class Message:
    """One message: its kind (an error class, or "warning"), its text with ⟨names⟩, and where it is made."""

    kind: str
    text: str
    module: str
    line: int

    @property
    def room(self) -> str:
        """The folder of its module."""
        return self.module.rpartition("/")[0] or "normscope"


def messages() -> list[Message]:
    """Return every message, in the order of folders, modules and lines."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    kinds = error_classes(trees.values())
    return [message for path, tree in trees.items() for message in _of_module(path, tree, kinds)]


def error_classes(trees: Any) -> set[str]:
    """Return the names of our error classes: NormscopeError and all that derive from it."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {BASE}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def _of_module(path: Path, tree: ast.Module, kinds: set[str]) -> Iterator[Message]:
    names = _Names(tree)
    module = path.relative_to(SOURCE).with_suffix("").as_posix()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in kinds:
            for call in _own_messages(node):
                yield Message(node.name, names.text(call.args[0]), module, call.lineno)
        if isinstance(node, ast.Call) and (kind := _kind(node, kinds)) and node.args:
            text = names.text(node.args[0])
            if not re.fullmatch(r"⟨[^⟩]*⟩", text):  # a message that is made elsewhere, and found there
                yield Message(kind, text, module, node.lineno)


def _own_messages(node: ast.ClassDef) -> Iterator[ast.Call]:
    """The messages that an error class makes by itself."""
    for call in ast.walk(node):
        made = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if made and call.func.attr == "__init__" and call.args and not isinstance(call.args[0], ast.Name):
            yield call


def _kind(node: ast.Call, kinds: set[str]) -> str:
    if isinstance(node.func, ast.Name) and node.func.id in kinds - {"MissingExtra"}:
        return node.func.id
    warns = isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "warnings.warn"
    return "warning" if warns else ""


class _Names:
    """What the names of a module stand for, as far as its text says it."""

    def __init__(self, tree: ast.Module) -> None:
        self._constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._returned = {
            node.name: node.body[-1].value
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return)
        }

    def text(self, node: ast.expr, depth: int = 0) -> str:
        """The text of an expression; what is only known when it runs stands as ⟨name⟩."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(part, depth) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left, depth) + self.text(node.right, depth)
        if isinstance(node, ast.IfExp):
            return self._either(self.text(node.body, depth), self.text(node.orelse, depth))
        if isinstance(node, ast.Name) and self._is_text(self._constants.get(node.id)):
            return self.text(self._constants[node.id], depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return f"⟨{_word(node)}⟩"

    def _call(self, node: ast.Call, depth: int) -> str:
        name = _word(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            return re.sub(r"\{[^}]*\}", "⟨…⟩", self.text(node.func.value, depth))
        if isinstance(node.func, ast.Name) and depth < 2 and self._is_text(self._returned.get(node.func.id)):
            return self.text(self._returned[node.func.id], depth + 1)
        if name in SAYING_THE_SAME and node.args:
            return self.text(node.args[0], depth)
        return f"⟨{name}⟩"

    @staticmethod
    def _is_text(node: ast.expr | None) -> bool:
        joined = isinstance(node, ast.JoinedStr | ast.BinOp)
        return joined or (isinstance(node, ast.Constant) and isinstance(node.value, str))

    @staticmethod
    def _either(one: str, other: str) -> str:
        if not one or not other:
            return f"({one or other})"
        bare = [text[1:-1] if re.fullmatch(r"⟨[^⟨⟩]*⟩", text) else text.strip() for text in (one, other)]
        return f"⟨{' | '.join(bare)}⟩"


def _word(node: ast.expr) -> str:
    """A plain word for an expression: the last of its names."""
    if isinstance(node, ast.Name):
        return node.id.strip("_").replace("_", " ")
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_").replace("_", " ")
    if isinstance(node, ast.Call):
        return _word(node.func)
    if isinstance(node, ast.Subscript):
        return _word(node.value)
    return "…"


def page(every: Sequence[Message] = ()) -> str:
    """Return the whole page: a table for each folder."""
    found: dict[str, list[Message]] = {}
    for message in every or messages():
        found.setdefault(message.room, []).append(message)
    parts = [HEAD]
    for room, several in sorted(found.items()):
        rows = [f"| {m.kind} | {_cell(m.text)} | `{m.module.rpartition('/')[2]}` |" for m in several]
        parts += [f"## {room}\n", "| kind | message | module |\n|---|---|---|", "\n".join(rows), ""]
    return "\n".join(parts)


def _cell(text: str) -> str:
    """A message in a cell of a table, with nothing that Markdown would read."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "messages.md", content=page()))
    return files


if __name__ == "__main__":
    sys.stdout.write(page())
