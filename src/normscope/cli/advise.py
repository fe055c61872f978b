"""normscope advise: what a careful colleague would say about a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers
from normscope.cli.options import JsonFlag, LogColumn, SeriesArgument, extent
from normscope.cli.output import print_json, print_notes
from normscope.words import printable

if TYPE_CHECKING:
    from normscope.theory.advice.advice_result import Advice, AdviceList

EXAMPLES = (
    "normscope advise run.db",
    "normscope advise run.db --until 20000 --json",
    "normscope advise norms.csv",
)


@gathers(chosen=extent)
def advise(
    source: SeriesArgument, chosen: dict[str, Any], column: LogColumn = None, json: JsonFlag = False
) -> None:
    """Say what to do about a training run.

    Prints what needs doing and what to watch, or that nothing does; each sentence with its confidence and
    the command that shows its numbers. What was not recorded is said last.
    """
    from normscope.theory.advice.advise import advise as judge

    result = judge(source, measure=column, **chosen)
    print_json(result) if json else _print(result)


def _print(result: AdviceList) -> None:
    for each in result:
        print(f"{each.severity:6} {printable(each.sentence)}")
        print(f"       {_beneath(each)}\n")
    print_notes(result.unknown)


def _beneath(each: Advice) -> str:
    return f"confidence {each.certainty}   {printable(each.command)}"
