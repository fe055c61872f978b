"""Execute the notebooks of examples/ and write their outputs into them; --check executes and writes nothing.

    python docs/notebooks.py [--check] [NOTEBOOK...]

Cells are plain Python, so this needs no kernel. A cell's last expression is shown as Jupyter would show it:
what has a picture as a picture, what has an HTML view as that, everything else as text.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
VIEWS = ("image/png", "text/html", "text/plain")  # the first of these that a value has


def execute(path: Path, check: bool = False) -> None:
    """Run all cells in an empty folder; an error names the notebook and the cell."""
    notebook = json.loads(path.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(codes, 1):
            try:
                cell["outputs"] = _run("".join(cell["source"]), names, number)
            except Exception as error:
                error.add_note(f"in cell {number} of {path.name}")
                raise
            cell["execution_count"] = number
    if not check:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What one cell prints and shows; progress bars on stderr are left out."""
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        data = None if shown is None else _view(shown)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if data:
        result = {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append(result)
    return outputs


def _view(value: Any) -> dict[str, Any]:
    """The richest view that a page without scripts can show."""
    bundle: dict[str, Any] = {}
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_() or {}
    if "text/html" not in bundle and hasattr(value, "_repr_html_"):
        bundle["text/html"] = value._repr_html_()
    bundle["text/plain"] = repr(value)
    kind = next(kind for kind in VIEWS if bundle.get(kind))
    return {kind: bundle[kind] if kind == "image/png" else _lines(bundle[kind])}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Execute the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="execute, and write nothing")
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(EXAMPLES.glob("*.ipynb")))
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for path in given.notebooks:
        print(f"executing {path.name}", file=sys.stderr)  # noqa: T201
        execute(path.resolve(), given.check)


if __name__ == "__main__":
    main()
