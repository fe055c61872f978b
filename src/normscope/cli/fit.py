"""normscope fit: by which law the norm grows, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import JsonFlag, print_json, print_table, printable, progress_bar

if TYPE_CHECKING:
    from normscope.theory.laws.groups import Group, GroupFits
    from normscope.theory.laws.growth import GrowthFit, LawFit

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A run file, a CSV file with the columns step and norm, or a reference series (t5-base)."
    ),
]
ByOption = Annotated[str, typer.Option(help="total, layer, role, component or tensor.")]
MeasureOption = Annotated[
    str | None,
    typer.Option("--measure", "--column", help="Measure of a run, or column of a CSV file; norm by default."),
]
ScopeOption = Annotated[str, typer.Option(help="body (without embeddings and head) or all.")]
StageOption = Annotated[str | None, typer.Option(help="Which stage of a run that has several.")]
SinceOption = Annotated[int, typer.Option(help="Leave out what comes before this step.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the bootstrap.")]


def fit(
    source: SourceArgument,
    by: ByOption = "total",
    measure: MeasureOption = None,
    scope: ScopeOption = "body",
    stage: StageOption = None,
    since: SinceOption = 0,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    """Fit growth laws to a series and say which one it follows, with intervals."""
    from normscope.theory.laws.groups import fit_groups
    from normscope.theory.laws.growth import fit_growth
    from normscope.theory.measures.series_sources import Selection

    if by == "total":
        one = fit_growth(source, measure, scope=scope, stage=stage, since=since, seed=seed)
        print_json(one) if json else _print_fit(one)
        return
    with progress_bar("fitting") as progress:
        many = fit_groups(source, Selection(measure, by, scope, stage, since), seed=seed, progress=progress)
    print_json(many) if json else _print_groups(many)


def _print_fit(result: GrowthFit) -> None:
    for sentence in (*result.sentences, *result.notes):
        print(printable(sentence))
    print()
    print_table(("law", "R²", "AICc", "held-out", "parameters"), map(_law_row, result.laws))


def _law_row(law: LawFit) -> list[str]:
    params = ", ".join(f"{name}={value:.4g}" for name, value in law.params.items())
    return [law.name, _fixed(law.r2, 5), _fixed(law.aicc, 1), _percent(law.holdout), params]


def _print_groups(result: GroupFits) -> None:
    for sentence in result.sentences:
        print(printable(sentence))
    print()
    names = ("group", "law", "R²", "exponent", "95 % interval", "growth", "")
    print_table(names, map(_group_row, result.groups))


def _group_row(group: Group) -> list[str]:
    law = group.law if group.decided else f"{group.law}?"
    interval = f"{_fixed(group.low, 3)} … {_fixed(group.high, 3)}"
    odd = "differs" if group.differs else ""
    values = (_fixed(group.r2, 5), _fixed(group.exponent, 3), interval, f"×{group.growth:.3f}")
    return [group.group, law, *values, odd]


def _fixed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
