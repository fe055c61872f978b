"""normscope compare: two runs, where and since when they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normscope.cli.fit import (
    ByOption,
    MeasureOption,
    ScopeOption,
    SeedOption,
    SinceOption,
    SourceArgument,
    StageOption,
)
from normscope.cli.output import JsonFlag, print_json, print_table, printable, progress_bar

if TYPE_CHECKING:
    from normscope.theory.laws.compare import Comparison, GroupDifference
    from normscope.theory.laws.intervals import Interval


def compare(
    a: SourceArgument,
    b: SourceArgument,
    by: ByOption = "total",
    measure: MeasureOption = None,
    scope: ScopeOption = "body",
    stage: StageOption = None,
    since: SinceOption = 0,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    """Say where two runs differ, since when, and by which power each grows."""
    from normscope.theory.laws.compare import compare as beside
    from normscope.theory.measures.series_sources import Selection

    with progress_bar("comparing") as progress:
        result = beside(a, b, Selection(measure, by, scope, stage, since), seed=seed, progress=progress)
    print_json(result) if json else _print(result)


def _print(result: Comparison) -> None:
    for sentence in result.sentences:
        print(printable(sentence))
    print()
    names = ("group", "a", "b", "ratio", "differ since", "exponent a", "exponent b", "p")
    print_table(names, map(_row, result.groups))


def _row(group: GroupDifference) -> list[str]:
    since = "–" if group.since is None else f"{group.since:,}"
    values = (f"{group.value_a:.5g}", f"{group.value_b:.5g}", f"{group.ratio:.3f}", since)
    p = "–" if group.p_value is None else f"{group.p_value:.3f}"
    return [group.group, *values, _exponent(group.exponent_a), _exponent(group.exponent_b), p]


def _exponent(exponent: Interval | None) -> str:
    return "–" if exponent is None else f"{exponent.value:.3f}"
