"""The shape of the package: the rooms of docs/architecture.md, their edges, light imports, unique names."""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import normscope

ROOT = Path(normscope.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"

FOUNDATION = "normscope"  # the modules beside __init__.py, which every room may import
FOUNDATION_FOLDERS = {"run_files"}  # part of it
EVERYTHING = "everything"
FORBIDDEN = {
    "theory": {"torch", "plotly"},
    "views": {"torch"},
    "literature": {"torch", "plotly", "scipy", "numpy"},
}
MAY_REPEAT_A_NAME = {"cli", "views"}  # a command or a figure may be called after the thing it shows


@cache
def table():
    """room → the rooms it may import, in the order of the page."""
    rows = re.findall(r"^\| `([\w/]+)` \|.*\| ([^|]*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {room: re.findall(r"`([\w/]+)`", allowed) or [allowed.strip()] for room, allowed in rows}


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")


def room_of(path):
    """The folder of a module, at most two deep: deeper folders belong to the room around them."""
    room = "/".join(path.relative_to(ROOT).parent.parts[:2]) or FOUNDATION
    return FOUNDATION if room in FOUNDATION_FOLDERS else room


@cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"))


@cache
def imported(path):
    """Every absolute module a file imports, wherever in the file."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


@cache
def rooms_imported(path):
    """The other rooms a module imports from."""
    found = set()
    for name in imported(path):
        parts = name.split(".")
        target = ROOT.joinpath(*parts[1:])
        if parts[0] == "normscope" and (target.with_suffix(".py")).is_file():
            found.add(room_of(target.with_suffix(".py")))
    return found


def allowed_for(room):
    allowed = table()[room]
    return set(table()) | {FOUNDATION} if allowed == [EVERYTHING] else {FOUNDATION, room, *allowed}


def test_every_folder_is_a_row_of_the_page():
    rooms = {room_of(path) for path in modules()} - {FOUNDATION}
    assert rooms == set(table())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_are_edges_of_the_page(path):
    room = room_of(path)
    if path.name == "__main__.py":
        return
    allowed = allowed_for(room) if room != FOUNDATION else {FOUNDATION}
    for other in rooms_imported(path):
        assert other in allowed, f"{path.relative_to(ROOT)} imports from {other}"
    for name in imported(path):
        assert name.split(".")[0] not in FORBIDDEN.get(room.split("/")[0], ()), f"{path} imports {name}"


def test_a_room_imports_only_rooms_above_it():
    order = {room: i for i, room in enumerate(table())}
    for room, allowed in table().items():
        for other in allowed:
            if other in order:
                assert order[other] < order[room], f"{room} may import {other}, which comes later"


def test_every_edge_of_the_page_is_used():
    used = defaultdict(set)
    for path in modules():
        used[room_of(path)] |= rooms_imported(path)
    for room, allowed in table().items():
        for other in allowed:
            assert other in (*used[room], EVERYTHING, "–"), f"{room} may import {other} and does not"


def test_nobody_imports_the_command_line():
    for path in modules():
        assert room_of(path) == "cli" or path.name == "__main__.py" or "cli" not in rooms_imported(path)


def test_every_room_says_what_it_holds():
    for folder in {path.parent for path in modules()}:
        tree = ast.parse((folder / "__init__.py").read_text("utf-8"))
        assert ast.get_docstring(tree), folder


def test_no_folder_is_crowded():
    for folder in {path.parent for path in modules()}:
        if folder.name != "cli":
            assert len([p for p in folder.glob("*.py") if not p.name.startswith("_")]) <= 15, folder


def test_no_two_modules_share_a_name():
    seen = {}
    for path in modules():
        if path.relative_to(ROOT).parts[0] not in MAY_REPEAT_A_NAME:
            other = seen.setdefault(path.name, path)
            assert other is path, f"{path} and {other}"


def test_no_two_classes_share_a_name():
    seen = {}
    for path in modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = seen.setdefault(node.name, path)
                assert other is path, f"class {node.name} in {path} and {other}"


def loaded_after(code):
    script = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import normscope",
        "import normscope.cli.app as app; app.build()",
        "import normscope.theory.measures.measures as m",
    ],
)
def test_importing_is_light(code):
    assert not loaded_after(code) & {"torch", "plotly", "scipy", "pandas", "transformers"}


def test_packages_only_re_export():
    for path in ROOT.glob("*/**/__init__.py"):
        kinds = {type(node).__name__ for node in ast.parse(path.read_text("utf-8")).body}
        assert kinds <= {"Expr", "Import", "ImportFrom", "Assign"}, path


def test_modules_stay_small():
    for path in modules():
        assert len(path.read_text("utf-8").splitlines()) <= 300, path
