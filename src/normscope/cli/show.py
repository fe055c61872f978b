"""normscope show: a measure of a run as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope
from normscope.cli.option_groups import gathers
from normscope.cli.options import By, JsonFlag, SeriesArgument, ShownMeasure, extent
from normscope.cli.output import console, print_doubts, print_json, print_remarks, print_table

if TYPE_CHECKING:
    from normscope.theory.measures.long_table import LongTable

EXAMPLES = (
    "normscope show run.db",
    "normscope show run.db --measure update --since 1000 --until 20000",
    "normscope show run.db --measure budget --by layer --json",
)
MOST_STEPS = 8  # columns of a table by group; --json has them all


@gathers(chosen=extent)
def show(
    source: SeriesArgument,
    chosen: dict[str, Any],
    measure: ShownMeasure = None,
    by: By = "total",
    json: JsonFlag = False,
) -> None:
    """Print a measure of a run by step.

    Measures of the parameters: norm, rms. Of a checkpoint and the one before: cosine, update, alignment,
    and growth of the squared norm with its radial and diffusive parts (budget: all three). Of a checkpoint
    and the first: distance.
    """
    from normscope.theory.measures.long_table import long_table

    found = long_table(source, measure, by=by, **chosen)
    print_doubts(found.findings, json)
    if json:
        print_json(found.table)
    elif by == "total":
        _print_by_step(found)
    else:
        _print_by_group(found)
    print_remarks(found.notes, json)


def _print_by_step(found: LongTable) -> None:
    """One row per step, one column per measure."""
    (group,) = found.groups
    names = [f"{name}{of_scope(found.scope)}" for name in found.measures]
    print_table(["step", *names], ([step, *found.values(step, group)] for step in found.steps))


def _print_by_group(found: LongTable) -> None:
    """One row per group, one column for each of a few steps."""
    steps = found.spread(MOST_STEPS)
    for measure in found.measures:
        rows = ([name, *(found.value(step, name, measure) for step in steps)] for name in found.groups)
        print_table(["group", *map(str, steps)], rows, title=f"{measure}{of_scope(found.scope)}")
    if len(steps) < len(found.steps):
        console().print(f"{len(steps)} of {len(found.steps)} steps; --json has them all", style="dim")
