"""normscope replicate: the claims of the paper, run on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.cli.option_groups import argument, gathers, refuse_unused
from normscope.cli.options import JsonFlag, Output
from normscope.cli.output import console, print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from normscope.replication.claim_list import ClaimList
    from normscope.replication.replicate import ReplicationConfig
    from normscope.replication.replication_result import Replication

EXAMPLES = (
    "normscope replicate --list",
    "normscope replicate sqrt-growth direction",
    "normscope replicate heads growth --preset standard --seeds 3 --engine ray://head:10001",
)
Claims = Annotated[list[str] | None, argument("CLAIM...", "Claims to run; all of them if none is named.")]
ListFlag = Annotated[
    bool, typer.Option("--list", help="List the claims, their cost on this machine, and what exists already.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Confirm the preset full, which takes days.")]
SETTINGS = {
    "preset": (
        str,
        "NAME",
        "quick (minutes), standard (an hour) or full (the paper's size). [default: quick]",
        *("quick", "standard", "full"),
    ),
    "seeds": (int, "N", "Number of seeds; intervals need two or more. [default: the preset's]"),
    "text": (str, "FILE", "Text to train and measure on. [default: prose that comes with Python]"),
    "valid": (str, "FILE", "Held-out text. [default: the last tenth of the text]"),
    "model": (list[str], "MODEL", "A pretrained model to measure as well; can be repeated."),
    "engine": (
        str,
        "NAME",
        "Where trainings run: processes:4, ray, ray://head:10001, dask:HOST:PORT. [default: processes]",
    ),
}


@gathers(settings=SETTINGS)
def replicate(
    settings: dict[str, Any],
    claims: Claims = None,
    list_: ListFlag = False,
    yes: Yes = False,
    output: Output = Path("replication"),
    json: JsonFlag = False,
) -> None:
    """Test the claims of the paper on this machine.

    Trains small networks as the paper's released code did and as it should have, measures both, and gives
    each claim a verdict. Killed and started again, it continues. Writes report.html and results.json.
    """
    from normscope.replication.replicate import ReplicationConfig
    from normscope.replication.replicate import replicate as run

    config = ReplicationConfig(
        preset=settings["preset"] or "quick",
        seeds=settings["seeds"],
        text=settings["text"],
        valid=settings["valid"],
        models=tuple(settings["model"] or ()),
        yes=yes,
    )
    if list_:
        unused = {name: value for name, value in settings.items() if name != "seeds"}
        refuse_unused("with --list", yes=yes, **unused)
        _list(claims or [], output, config, json)
        return
    if yes:
        refuse_unused("without --preset full", yes=config.preset != "full")
        _announce(claims or [], output, config)
    with progress_bar("replicating") as progress:
        found = run(
            *(claims or []), output=output, config=config, engine=settings["engine"], progress=progress
        )
    from normscope.views.replication.replication_page import write_replication_page

    page = write_replication_page(found, found.out / "report.html")
    print_json({"claims": found.claims, "report": str(page)}) if json else _print(found, page)


def _announce(claims: list[str], output: Path, config: ReplicationConfig) -> None:
    """Print what the preset full takes, before it begins."""
    from normscope.replication.claim_files import chosen_claims
    from normscope.replication.replicate import full_cost, plan_jobs

    print(full_cost(plan_jobs(chosen_claims(claims), config, output)), file=sys.stderr)


def _list(claims: list[str], output: Path, config: ReplicationConfig, json: bool) -> None:
    from normscope.replication.claim_list import list_claims

    with progress_bar("timing") as progress:
        found = list_claims(claims, output, config, progress)
    print_json(found) if json else _print_list(found)


def _print_list(found: ClaimList) -> None:
    from normscope.replication.experiment import PRESETS
    from normscope.replication.trial_costs import shown_time

    rows = [
        (c.id, c.title, *(shown_time(c.seconds[p]) for p in PRESETS), c.verdict or "–", c.preset or "–")
        for c in found.claims
    ]
    totals = ("", "all, what they share run once", *(shown_time(found.seconds[p]) for p in PRESETS), "", "")
    names = ("claim", "title", *PRESETS, "verdict so far", "from preset")
    print_table(names, [*rows, totals])
    console().print(
        f"\nEstimates for this machine ({found.cores} cores), from a few timed updates; "
        "full is for WikiText-2.",
        markup=False,
    )


def _print(found: Replication, page: Path) -> None:
    table = found.table
    print_table(list(table.columns), zip(*table.columns.values(), strict=True))
    print()
    print_notes(dict.fromkeys(note for claim in found.claims for note in claim.notes))
    say = console()
    say.print(found.messages[0], markup=False)
    say.print(
        f"results  {found.out / 'results.json'}\nreport   {page}  (open it in any browser)", markup=False
    )
