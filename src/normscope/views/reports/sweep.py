"""The page of a sweep: maps of the change of the norm and of the loss over learning rate × weight decay.

The page reads the documents that `normscope sweep` leaves in sweep.db (docs/json.md describes them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope.anatomy import of_scope
from normscope.errors import RunFileError
from normscope.run import Run
from normscope.table import Value
from normscope.theory.dynamics.growth_boundary import NORM_FIELDS, Cell
from normscope.theory.places.run_places import SWEEP_FILE
from normscope.views.figures.sweep.cells import cell_name, curve_figure, sweep_scope
from normscope.views.figures.sweep.sweep_map import READING, grids, is_map, report_figures
from normscope.views.page.formatting import number, plural
from normscope.views.page.page import provenance
from normscope.views.page.page_parts import Page, Section, SectionPart, Stage, TableSpec
from normscope.views.reports.first_screen import scope_sentence
from normscope.words import joined, printable

MOST_MAPS = 6


def read_cells(folder: Path) -> tuple[list[Cell], dict[str, Any]]:
    """The documents of the cells of a sweep, and how it was made."""
    with Run(folder / SWEEP_FILE) as run:
        return list(run.artifacts("cell").values()), run.meta


def sweep_page(folder: Path, written: Mapping[str, str]) -> Page:
    """The page of a sweep, finished or not."""
    found, meta = read_cells(folder)
    if not found:
        raise RunFileError(
            f"{folder} contains a sweep without a finished cell: run the sweep again to continue it"
        )
    first = Stage(
        "",
        _summary(found),
        [],
        [_maps(found), _table(found)],
        scope=scope_sentence(sweep_scope(found)),
        soundness=_soundness(found),
    )
    return Page(
        title="Learning rate, weight decay and the norm" if is_map(found) else "A sweep",
        subject=printable(folder.resolve().name),
        subtitle=cells_in_words(found),
        stages=[first],
        closing=[],
        warnings=[],
        provenance=provenance(meta, **written),
    )


def cells_in_words(found: Sequence[Cell]) -> str:
    """How many cells there are, and what became of them: "6 cells: 5 done and 1 failed"."""
    counts = Counter(cell["status"] for cell in found)
    return (
        f"{plural(len(found), 'cell')}: {joined(f'{number} {status}' for status, number in counts.items())}"
    )


def _soundness(found: Sequence[Cell]) -> str:
    done = sum(cell["status"] == "done" for cell in found)
    which = "Every cell" if done == len(found) else f"{done} of {plural(len(found), 'cell')}"
    return f"{which} finished. The norms were recorded while the cells trained; no checkpoints were audited."


def _summary(found: Sequence[Cell]) -> list[str]:
    done = [cell for cell in found if cell.get("norm_end") is not None and cell["status"] == "done"]
    if not done:
        return ["No cell finished training: all failed or diverged."]
    scope = sweep_scope(found)
    grown = [cell for cell in done if _end(cell, scope) > _start(cell, scope)]
    whose = of_scope(scope)
    sentences = [f"The norm{whose} grew in {len(grown)} of {plural(len(done), 'finished cell')}."]
    with_loss = [cell for cell in done if cell.get("loss") is not None]
    if with_loss:
        best = min(with_loss, key=lambda cell: float(cell["loss"]))
        where = f"at {cell_name(best)}; there the norm{whose} {_change(best, scope)}"
        sentences.append(f"The lowest loss is {number(best['loss'])}, {where}.")
    return sentences


def _start(cell: Cell, scope: str) -> float:
    return float(cell[f"{NORM_FIELDS[scope]}_start"])


def _end(cell: Cell, scope: str) -> float:
    return float(cell[f"{NORM_FIELDS[scope]}_end"])


def _change(cell: Cell, scope: str) -> str:
    start, end = _start(cell, scope), _end(cell, scope)
    return f"{'grew' if end > start else 'shrank'} from {number(start)} to {number(end)}"


def _maps(found: Sequence[Cell]) -> Section:
    """The maps of each combination of the other fields, with the curves of one cell below them."""
    if not is_map(found):
        return Section("curves", "Curves", (), [curve_figure(found)])
    maps = grids(found)
    parts: list[SectionPart] = []
    for i, (rest, grid) in enumerate(list(maps.items())[:MOST_MAPS]):
        parts += report_figures(i, grid, rest)
    sentences = [f"{READING} Click a cell for its curves."]
    if len(maps) > MOST_MAPS:
        sentences.append(f"The first {MOST_MAPS} of {len(maps)} combinations of the other fields are drawn.")
    return Section("maps", "Maps", sentences, parts)


def _table(found: Sequence[Cell]) -> Section:
    names = list(dict.fromkeys(name for cell in found for name in cell["changes"]))
    scope = sweep_scope(found)
    norm, whose = NORM_FIELDS[scope], of_scope(scope)
    columns = {
        "status": "status",
        f"{norm}_start": f"norm{whose} at the start",
        f"{norm}_end": f"norm{whose} at the end",
        "loss": "loss",
        f"{norm.removesuffix('norm')}update": f"update size{whose}",
    }
    rows = [
        (
            *(_cell(cell["changes"].get(name)) for name in names),
            *(_cell(cell.get(column)) for column in columns),
        )
        for cell in found
    ]
    errors = [(cell, cell.get("error") or cell.get("saturation_error")) for cell in found]
    failed = [(cell_name(cell), printable(str(error))) for cell, error in errors if error]
    tables = [TableSpec("cells", "Every cell", (*names, *columns.values()), rows, folded=True)]
    if failed:
        tables.append(
            TableSpec("failures", f"Errors ({len(failed)})", ("cell", "error"), failed, folded=True)
        )
    return Section("tables", "Tables", (), tables)


def _cell(value: object) -> Value:
    return value if isinstance(value, (int, float)) or value is None else printable(str(value))
