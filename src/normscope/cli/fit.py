"""normscope fit: by which law the norm grows, and how certain that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope
from normscope.cli.option_groups import gathers
from normscope.cli.options import By, JsonFlag, Seed, SeriesArgument, selection
from normscope.cli.output import print_json, print_sentences, print_table, progress_bar
from normscope.words import sentence

if TYPE_CHECKING:
    from normscope.theory.laws.groups import GroupFit, GroupFits
    from normscope.theory.laws.growth import GrowthFit, LawFit

EXAMPLES = (
    "normscope fit run.db",
    "normscope fit run.db --by layer --since 1000",
    "normscope fit losses.csv --column loss",
)


@gathers(chosen=selection)
def fit(
    source: SeriesArgument,
    chosen: dict[str, Any],
    by: By = "total",
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Find the growth law that the norm follows.

    Fits square root, linear, logarithm, power and other laws; prints which one the data support, how
    clearly, and the exponent with its 95 % interval.
    """
    from normscope.theory.laws.groups import fit_groups
    from normscope.theory.laws.growth import fit_growth

    if by == "total":
        one = fit_growth(source, **chosen, seed=seed)
        print_json(one) if json else _print_fit(one)
        return
    with progress_bar("fitting") as progress:
        many = fit_groups(source, by=by, **chosen, seed=seed, progress=progress)
    print_json(many) if json else _print_groups(many)


def _print_fit(result: GrowthFit) -> None:
    print_sentences(*result.sentences, *map(sentence, result.notes))
    print_table(("law", "R²", "AICc", "held-out", "parameters"), map(_law_row, result.laws))


def _law_row(law: LawFit) -> list[str]:
    return [law.name, _fixed(law.r2, 5), _fixed(law.aicc, 1), _percent(law.holdout), law.shown(4)]


def _print_groups(result: GroupFits) -> None:
    print_sentences(*result.sentences)
    names = (
        f"group{of_scope(result.scope)}",
        "law",
        "R²",
        "exponent",
        "95 % interval",
        "growth",
        "stands out",
    )
    print_table(names, map(_group_row, result.groups))


def _group_row(group: GroupFit) -> list[str]:
    unclaimed = f"none (closest: {group.law})" if group.verdict == "none" else f"{group.law}?"
    law = group.law if group.decided else unclaimed
    odd = "–" if group.p_value is None else "yes" if group.differs else "no"
    growth = "–" if group.growth is None else f"×{group.growth:.3f}"
    unknown = group.exponent is not None and not group.tells
    exponent = "not known" if unknown else _fixed(group.exponent, 3)
    values = (_fixed(group.r2, 5), exponent, group.interval, growth)
    return [group.group, law, *values, odd]


def _fixed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
