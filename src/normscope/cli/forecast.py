"""normscope forecast: where the norm is going under this learning rate and weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.fit import MeasureOption, ScopeOption, SeedOption, SinceOption, SourceArgument, StageOption
from normscope.cli.output import JsonFlag, print_json, print_table, printable

if TYPE_CHECKING:
    from normscope.theory.dynamics.forecast import Forecast


def forecast(
    source: SourceArgument,
    to: Annotated[int, typer.Option(help="The step to forecast.")],
    lr: Annotated[
        float | None, typer.Option(help="Learning rate from here on; the last recorded one.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay from here on.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="constant, cosine, linear, inverse-sqrt, wsd, or a CSV file (step, lr)."),
    ] = None,
    momentum: Annotated[float, typer.Option(help="Adam's β₁ or SGD's momentum.")] = 0.9,
    measure: MeasureOption = None,
    scope: ScopeOption = "body",
    stage: StageOption = None,
    since: SinceOption = 0,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    """Say where the norm will be at a later step, and where it comes to rest."""
    from normscope.theory.dynamics.forecast import Plan
    from normscope.theory.dynamics.forecast import forecast as look_ahead
    from normscope.theory.measures.series_sources import Selection

    plan = Plan(lr, weight_decay, schedule, momentum, seed)
    result = look_ahead(source, to, plan, Selection(measure, "total", scope, stage, since))
    print_json(result) if json else _print(result)


def _print(result: Forecast) -> None:
    for sentence in (*result.sentences, *result.notes):
        print(printable(sentence))
    print()
    rows = list(result.curve)
    kept = [rows[i] for i in sorted({round(j * (len(rows) - 1) / 9) for j in range(10)})]
    print_table(("step", "norm", "low", "high"), [list(row.values()) for row in kept])
