"""normscope forecast: the norm at a later step, under this learning rate and weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope
from normscope.cli.option_groups import gathers, refuse_unused
from normscope.cli.options import (
    BacktestFlag,
    JsonFlag,
    NoSeed,
    SeriesArgument,
    Threshold,
    To,
    plan,
    selection,
)
from normscope.cli.output import print_json, print_sentences, print_table
from normscope.errors import UsageError
from normscope.words import sentence

if TYPE_CHECKING:
    from normscope.theory.dynamics.dynamics import Equilibrium
    from normscope.theory.forecasts.backtest import Backtest
    from normscope.theory.forecasts.forecast_result import Forecast

EXAMPLES = (
    "normscope forecast run.db --to 100000",
    "normscope forecast run.db --to 100000 --lr 3e-4 --weight-decay 0.1 --schedule cosine",
    "normscope forecast log.csv --column param_norm --to 100000 --plan plan.csv",
    "normscope forecast run.db --backtest",
    "normscope forecast run.db --measure qk-spectral-norm --threshold 50",
)


@gathers(future=plan, chosen=selection)
def forecast(
    source: SeriesArgument,
    future: dict[str, Any],
    chosen: dict[str, Any],
    to: To = None,
    threshold: Threshold = None,
    backtest: BacktestFlag = False,
    seed: NoSeed = 0,
    json: JsonFlag = False,
) -> None:
    """Forecast the norm at a later step.

    Prints the expected norm with its 95 % interval, how well the same method would have forecast the later
    part of the run, and the equilibrium norm under this learning rate and weight decay. With --threshold, it
    also says when that value is passed. With --until, only earlier steps are used; with --lr, --weight-decay
    or --plan, training continues with other rates.
    """
    refuse_unused("in a forecast, which uses no random numbers", seed=seed)
    from normscope.theory.forecasts.training_plan import Plan

    plan = Plan(**future)
    if backtest:
        refuse_unused(
            "with --backtest, which forecasts the last step", to=to, threshold=threshold is not None
        )
        if plan != Plan():
            raise UsageError("--backtest compares with what the run did; leave out the rates of another plan")
        _run_backtest(source, chosen, json)
        return
    if to is None and threshold is None:
        raise UsageError("expected --to STEP, the step to forecast, --threshold X or --backtest")
    from normscope.theory.forecasts.forecast import forecast as look_ahead

    result = look_ahead(source, to, plan, threshold=threshold, **chosen)
    print_json(result) if json else _print(result)


def _run_backtest(source: str, chosen: dict[str, Any], json: bool) -> None:
    from normscope.theory.forecasts.backtest import backtest as look_back

    found = look_back(source, **chosen)
    print_json(found) if json else _print_backtest(found)


def _print(result: Forecast) -> None:
    print_sentences(*result.sentences, *map(sentence, result.notes))
    rows = list(result.curve)
    kept = [rows[i] for i in sorted({round(j * (len(rows) - 1) / 9) for j in range(10)})]
    name = f"{result.past.unit or 'norm'}{of_scope(result.scope)}"
    print_table(("step", name, "low", "high"), [list(row.values()) for row in kept])
    if len(result.groups) > 1:
        _print_groups(result)


def _print_groups(result: Forecast) -> None:
    rows = [
        (each.group, f"{each.norm_now:.4g}", f"{each.norm:.4g}", _rest(each.equilibrium))
        for each in result.groups
    ]
    print()
    print_table(("parameter group", "norm now", f"at step {result.to:,}", "at rest"), rows)


def _rest(rest: Equilibrium) -> str:
    if rest.norm is None:
        return "–"
    return f"{rest.norm:.4g}" if rest.known else "not known"


def _print_backtest(found: Backtest) -> None:
    print_sentences(*found.sentences, *map(sentence, found.notes))
    names = (
        "known up to",
        "forecast",
        "low",
        "high",
        "came",
        "error",
        "last value",
        "√t fit",
        "inside",
        "method",
    )
    rows = [
        (
            f"{row.known:,}",
            *(f"{value:.5g}" for value in (row.value, row.low, row.high, row.actual)),
            *(f"{error:+.1%}" for error in (row.error, row.error_last, row.error_sqrt)),
            "yes" if row.inside else "no",
            row.method,
        )
        for row in found.rows
    ]
    print_table(names, rows)
