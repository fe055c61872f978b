"""How heads that changed type are printed, by `saturate` and by `compare`."""

from __future__ import annotations

from normscope.cli.output import console, print_table
from normscope.theory.measures.head_changes import HeadChanges, TypeChange
from normscope.words import printable

SHOWN = 10


def print_changes(changes: HeadChanges, sentence: str = "") -> None:
    """Print how many heads changed type, and the first of them."""
    stage = f"stage {printable(changes.stage)}: " if changes.stage else ""
    console().print(f"\n{stage}{sentence or changes.sentence}", markup=False)
    rows = [
        [head.layer, head.head, head.module, head.before, head.after, _steps(head.changes)]
        for head in changes.heads[:SHOWN]
    ]
    if rows:
        more = len(changes.heads) - len(rows)
        title = f"the first {SHOWN}; {more} more with --json or in the report" if more > 0 else None
        print_table(["layer", "head", "module", "first", "last", "at steps"], rows, title)


def _steps(changes: tuple[TypeChange, ...]) -> str:
    """ "100, 2,000": the steps at which another type was first seen."""
    return ", ".join(f"{change.step:,}" for change in changes)
