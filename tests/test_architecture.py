"""The shape of the package: imports point one way, importing is light, the public names are these."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import normscope

ROOT = Path(normscope.__file__).parent

FIRST = {
    *("_version", "anatomy", "atomic_write", "errors", "export_file", "optional", "progress", "rows", "run"),
    *("schedule", "table", "words"),
}
# package → what it may import of normscope, beside itself and FIRST
MAY = {
    "checkpoints": set(),
    "weights": {"checkpoints", "theory"},
    "network": {"checkpoints"},
    "theory": set(),
    "lab": {"checkpoints", "weights", "network", "theory"},
    "integrations": {"checkpoints", "weights", "network", "theory", "lab"},
    "views": {"theory"},
    "cli": {"checkpoints", "weights", "network", "theory", "lab", "integrations", "views"},
    "data": set(),
    "__main__": {"cli"},
}
FORBIDDEN = {"theory": {"torch", "plotly"}, "views": {"torch"}}


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")


def imported(path):
    """Every absolute module a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    relative = path.relative_to(ROOT)
    package = relative.parts[0] if len(relative.parts) > 1 else None
    allowed = FIRST | {package} | MAY.get(package or path.stem, set())
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "normscope" and len(parts) > 1 and (ROOT / parts[1]).exists():
            assert parts[1] in allowed, f"{relative} imports {name}"
        if package in FORBIDDEN:
            assert parts[0] not in FORBIDDEN[package], f"{relative} imports {name}"


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


def test_public_names():
    assert sorted(normscope.__all__) == normscope.__all__
    for name in normscope.__all__:
        assert getattr(normscope, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        normscope.nonsense  # noqa: B018


def test_packages_only_re_export():
    for path in ROOT.glob("*/**/__init__.py"):
        kinds = {type(node).__name__ for node in ast.parse(path.read_text("utf-8")).body}
        assert kinds <= {"Expr", "Import", "ImportFrom", "Assign"}, path


def test_modules_stay_small():
    for path in modules():
        assert len(path.read_text("utf-8").splitlines()) <= 300, path


def test_no_module_hides_a_public_name():
    """A submodule of the same name would replace the function as soon as it is imported."""
    children = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not children & set(normscope.__all__)
