"""normscope compare: where two runs differ, and from which step on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope
from normscope.cli.option_groups import gathers, refuse_unused
from normscope.cli.options import By, FirstSeriesArgument, JsonFlag, SecondSeriesArgument, Seed, selection
from normscope.cli.output import plain, print_json, print_sentences, print_table, progress_bar
from normscope.errors import SeriesError, UsageError

if TYPE_CHECKING:
    from normscope.theory.laws.compare import Comparison, GroupDifference
    from normscope.theory.laws.intervals import Interval
    from normscope.theory.measures.head_changes import HeadChanges

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
    exponent of growth of each run. If attention heads were measured in both: which have another type.
    """
    from normscope.theory.laws.compare import compare as compare_runs

    heads, comparable = _compare_heads(a, b, chosen)
    if heads and not comparable:
        unused = {"measure": chosen["measure"], "scope": chosen["scope"], "by": by if by != "total" else None}
        refuse_unused("with run files that have attention heads and no norms", **unused)
        print_json({"a": a, "b": b, "head_changes": heads}) if json else _print_heads(heads)
        return
    with progress_bar("comparing") as progress:
        result = compare_runs(a, b, by=by, **chosen, seed=seed, progress=progress)
    if json:
        print_json(plain(result) | {"head_changes": heads})
        return
    _print(result)
    if heads:
        _print_heads(heads)


def _compare_heads(a: str, b: str, chosen: dict[str, Any]) -> tuple[HeadChanges | None, bool]:
    """What became of the attention heads, if both have some; and whether both runs have norms to compare."""
    from normscope.theory.measures.head_changes import head_changes_of_runs
    from normscope.theory.measures.series_sources import opened_run
    from normscope.theory.places.recorded_norms import has_norms

    with opened_run(a) as left, opened_run(b) as right:
        if left is None or right is None:
            return None, True
        comparable = has_norms(left) and has_norms(right)
        try:
            return head_changes_of_runs(left, right, chosen["stage"], chosen["until"]), comparable
        except (SeriesError, UsageError):  # models with other heads can still be compared by their norms
            if not comparable:
                raise
            return None, True


def _print_heads(changes: HeadChanges) -> None:
    from normscope.cli.head_types import print_changes

    known = changes.changed + changes.same
    text = (
        f"{changes.changed} of {known} attention heads have another type in b: step {changes.first:,} of a, "
        f"step {changes.last:,} of b"
    )
    print_changes(changes, "; ".join([text, *changes.doubts]))


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
