"""normscope compare: where two runs differ, and from which step on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope
from normscope.cli.option_groups import gathers
from normscope.cli.options import By, FirstSeriesArgument, JsonFlag, SecondSeriesArgument, Seed, selection
from normscope.cli.output import print_json, print_sentences, print_table, progress_bar

if TYPE_CHECKING:
    from normscope.theory.laws.compare import Comparison, GroupDifference
    from normscope.theory.laws.intervals import Interval

EXAMPLES = ("normscope compare a.db b.db", "normscope compare a.db b.db --by layer")


@gathers(chosen=selection)
def compare(
    a: FirstSeriesArgument,
    b: SecondSeriesArgument,
    chosen: dict[str, Any],
    by: By = "total",
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Show where two runs differ.

    For each group: both values at the last common step, the first step from which they differ, and the
    exponent of growth of each run.
    """
    from normscope.theory.laws.compare import compare as compare_runs

    with progress_bar("comparing") as progress:
        result = compare_runs(a, b, by=by, **chosen, seed=seed, progress=progress)
    print_json(result) if json else _print(result)


def _print(result: Comparison) -> None:
    print_sentences(*result.sentences)
    same = result.scope_a if result.scope_a == result.scope_b else ""
    names = (f"group{of_scope(same)}", "a", "b", "ratio", "differ since", "exponent a", "exponent b", "p")
    print_table(names, map(_row, result.groups))


def _row(group: GroupDifference) -> list[str]:
    since = "–" if group.since is None else f"{group.since:,}"
    values = (f"{group.value_a:.5g}", f"{group.value_b:.5g}", f"{group.ratio:.3f}", since)
    p = "–" if group.p_value is None else f"{group.p_value:.3f}"
    return [group.group, *values, _exponent(group.exponent_a), _exponent(group.exponent_b), p]


def _exponent(exponent: Interval | None) -> str:
    return "–" if exponent is None else f"{exponent.value:.3f}"
