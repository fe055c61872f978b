"""Which run file a path names: the file itself, the folder of a training run, or a cell of a sweep.

run.db                            a run file
runs/dyck, grid/cells/ID          the folder of a training run or of a cell: its run.db
grid@lr=0.01,weight_decay=0.1     the cell of a sweep that changed these fields to these values
grid@ID                           the cell of a sweep with this name
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope.errors import UsageError
from normscope.run import Run
from normscope.words import some

RUN_FILE, SWEEP_FILE = "run.db", "sweep.db"
MARK = "@"
SHOWN = 4

CellDocument = Mapping[str, Any]


def run_place(source: str | Path) -> Path:
    """The run file that a source names; the path as it is if it names none.

    A file or a folder that exists takes precedence over a cell.
    """
    path = Path(source)
    folder, mark, wanted = str(source).rpartition(MARK)
    if not path.exists() and mark and is_sweep(Path(folder)):
        return _cell_place(Path(folder), wanted)
    if is_sweep(path) or (path.is_file() and path.name == SWEEP_FILE):
        place = path if path.is_dir() else path.parent
        cells = _cells(place)
        raise UsageError(
            f"{path} is a sweep of {len(cells)} finished cells: name one, such as {_example(place, cells)}"
        )
    return path / RUN_FILE if path.is_dir() and (path / RUN_FILE).is_file() else path


def is_sweep(path: Path) -> bool:
    """Whether the path is a folder that `normscope sweep` wrote."""
    return path.is_dir() and (path / SWEEP_FILE).is_file()


def _cell_place(folder: Path, wanted: str) -> Path:
    cells = _cells(folder)
    found = [cell for cell in cells if cell["id"] == wanted]
    if not found and "=" in wanted:
        found = [cell for cell in cells if _has(cell["changes"], _fields(folder, wanted, cells))]
    if len(found) == 1:
        return folder / str(found[0]["run"])
    if found:
        names = some([str(cell["id"]) for cell in found], SHOWN)
        raise UsageError(
            f"{len(found)} cells of {folder} have {wanted} ({names}): give more fields, or the name of one"
        )
    raise UsageError(
        f"{folder} has no cell {wanted}: it has {some([_changes(cell) for cell in cells], SHOWN)}"
    )


def _cells(folder: Path) -> Sequence[CellDocument]:
    with Run(folder / SWEEP_FILE) as run:
        return list(run.artifacts("cell").values())


def _fields(folder: Path, text: str, cells: Sequence[CellDocument]) -> dict[str, str]:
    """The fields and values of `lr=0.01,weight_decay=0.1`."""
    known = list(dict.fromkeys(name for cell in cells for name in cell["changes"]))
    found = {}
    for part in text.split(","):
        name, mark, value = (word.strip() for word in part.partition("="))
        if not mark or name not in known:
            raise UsageError(
                f"the cells of {folder} differ in {', '.join(known)}; got {part.strip() or 'nothing'!r}"
            )
        found[name] = value
    return found


def _has(changes: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(name in changes and _equal(changes[name], value) for name, value in wanted.items())


def _equal(value: object, text: str) -> bool:
    """Whether a value is what was typed: numbers by their value, anything else by its spelling."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return math.isclose(value, float(text), rel_tol=1e-9)
        except ValueError:
            return False
    return str(value) == text


def _changes(cell: CellDocument) -> str:
    return ",".join(f"{name}={value}" for name, value in cell["changes"].items())


def _example(folder: Path, cells: Sequence[CellDocument]) -> str:
    return f"{folder}{MARK}{_changes(cells[0])}" if cells else f"{folder}{MARK}lr=0.01"
