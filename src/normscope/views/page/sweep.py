"""A sweep as maps: how the norm changed and what the loss became over learning rate × weight decay.

The page reads the documents that `normscope sweep` leaves in sweep.db (docs/lab.md describes them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope.errors import RunFileError
from normscope.run import Run
from normscope.views.figures import cells
from normscope.views.figures.sweep_map import figures
from normscope.views.page.formatting import clean, number, plural
from normscope.views.page.page import provenance
from normscope.views.page.page_parts import Block, Grid, Page, Section, Stage
from normscope.words import joined

FILE = "sweep.db"
MOST_MAPS = 6
Cell = Mapping[str, Any]


def is_sweep(path: Path) -> bool:
    """Whether the path is a folder that `normscope sweep` wrote."""
    return path.is_dir() and (path / FILE).is_file()


def sweep_page(folder: Path, written: Mapping[str, str]) -> Page:
    """The sweep so far, as a page."""
    with Run(folder / FILE) as run:
        found: list[Cell] = list(run.artifacts("cell").values())
        meta = run.meta
    if not found:
        raise RunFileError(
            f"{folder} holds a sweep without a finished cell: run the sweep again to continue it"
        )
    return Page(
        title="Learning rate, weight decay and the norm" if _axes(found) else "A sweep",
        subject=clean(folder.resolve().name),
        subtitle=_subtitle(found),
        stages=[Stage("", _summary(found), [], [_maps(found, meta.get("base", {})), _table(found)])],
        closing=[],
        warnings=[],
        provenance=provenance(meta, **written),
    )


def _subtitle(found: Sequence[Cell]) -> str:
    counts = Counter(cell["status"] for cell in found)
    return (
        f"{plural(len(found), 'cell')}: {joined(f'{number} {status}' for status, number in counts.items())}"
    )


def _summary(found: Sequence[Cell]) -> list[str]:
    done = [cell for cell in found if cell.get("norm_end") is not None and cell["status"] == "done"]
    if not done:
        return ["No cell finished training: every one failed or diverged."]
    grown = [cell for cell in done if _end(cell) > _start(cell)]
    said = [f"The norm grew in {len(grown)} of {plural(len(done), 'finished cell')}."]
    with_loss = [cell for cell in done if cell.get("loss") is not None]
    if with_loss:
        best = min(with_loss, key=lambda cell: float(cell["loss"]))
        said.append(
            f"The lowest loss is {number(best['loss'])}, at {cells.name(best)}; the norm there {_move(best)}."
        )
    return said


def _start(cell: Cell) -> float:
    return float(cell.get("body_norm_start") or cell["norm_start"])


def _end(cell: Cell) -> float:
    return float(cell.get("body_norm_end") or cell["norm_end"])


def _move(cell: Cell) -> str:
    verb = "grew" if _end(cell) > _start(cell) else "shrank"
    return f"{verb} from {number(_start(cell))} to {number(_end(cell))}"


def _axes(found: Sequence[Cell]) -> bool:
    """Whether learning rate and weight decay both vary, so that there is a map to draw."""
    return all(len({cell[name] for cell in found}) > 1 for name in ("lr", "weight_decay"))


def _maps(found: Sequence[Cell], base: Mapping[str, Any]) -> Section:
    """A map for each combination of the other fields; the curves of one cell under the first map."""
    if not _axes(found):
        return Section("curves", "Curves", (), [cells.curves(found)])
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        groups.setdefault(cells.others(cell), []).append(cell)
    blocks: list[Block] = []
    for i, (rest, part) in enumerate(list(groups.items())[:MOST_MAPS]):
        blocks += figures(i, part, f" ({rest})" if rest else "", base)
    said = [cells.READING]
    if len(groups) > MOST_MAPS:
        said.append(f"The first {MOST_MAPS} of {len(groups)} combinations of the other fields are drawn.")
    return Section("maps", "Maps", said, blocks)


def _table(found: Sequence[Cell]) -> Section:
    names = list(dict.fromkeys(name for cell in found for name in cell["changes"]))
    columns = ("status", "norm_start", "norm_end", "body_norm_start", "body_norm_end", "loss", "update")
    rows = [
        (
            *(_cell(cell["changes"].get(name)) for name in names),
            *(_cell(cell.get(column)) for column in columns),
        )
        for cell in found
    ]
    failed = [(cells.name(cell), clean(str(cell["error"]))) for cell in found if cell.get("error")]
    tables = [Grid("cells", "Every cell", (*names, *columns), rows, folded=True)]
    if failed:
        tables.append(
            Grid("failures", f"What went wrong ({len(failed)})", ("cell", "error"), failed, folded=True)
        )
    return Section("tables", "Tables", (), tables)


def _cell(value: object) -> str | int | float | None:
    return value if isinstance(value, (int, float)) or value is None else clean(str(value))
