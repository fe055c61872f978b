"""normscope forecast: the norm at a later step, under this learning rate and weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope
from normscope.cli.option_groups import gathers, refuse_unused
from normscope.cli.options import JsonFlag, NoSeed, SeriesArgument, To, plan, selection
from normscope.cli.output import print_json, print_sentences, print_table

if TYPE_CHECKING:
    from normscope.theory.forecasts.forecast_result import Forecast

EXAMPLES = (
    "normscope forecast run.db --to 100000",
    "normscope forecast run.db --to 100000 --lr 3e-4 --weight-decay 0.1 --schedule cosine",
)


@gathers(future=plan, chosen=selection)
def forecast(
    source: SeriesArgument,
    to: To,
    future: dict[str, Any],
    chosen: dict[str, Any],
    seed: NoSeed = 0,
    json: JsonFlag = False,
) -> None:
    """Forecast the norm at a later step.

    Prints the expected norm with its 95 % interval, how well the same method would have forecast the
    second half of the run, and the equilibrium norm under this learning rate and weight decay.
    """
    refuse_unused("in a forecast, which uses no random numbers", seed=seed)
    from normscope.theory.forecasts.forecast import forecast as look_ahead
    from normscope.theory.forecasts.plan import Plan

    result = look_ahead(source, to, Plan(**future), **chosen)
    print_json(result) if json else _print(result)


def _print(result: Forecast) -> None:
    print_sentences(*result.sentences, *result.notes)
    rows = list(result.curve)
    kept = [rows[i] for i in sorted({round(j * (len(rows) - 1) / 9) for j in range(10)})]
    name = f"{result.past.unit or 'norm'}{of_scope(result.scope)}"
    print_table(("step", name, "low", "high"), [list(row.values()) for row in kept])
