"""normscope demo: train a small model here, measure everything, write the report."""

from __future__ import annotations

import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import JsonFlag, console, number, print_json, print_table, progress_bar
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.theory.answer import Answer

MARK = ".normscope-demo"  # says that the folder is a demo's, so that the next one may clear it
MADE_HERE = ("checkpoints", "data", "config.json", "report.html", "run.db", "state.pt")


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for checkpoints, run file and report.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Train this many steps instead of the usual.", min=10)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Train a small transformer on English prose, scan its checkpoints, fit the laws, write a report."""
    from dataclasses import replace

    from normscope.lab.demo import demo_config
    from normscope.lab.training.train import train
    from normscope.theory.answer import answer
    from normscope.views.page.report import report
    from normscope.weights.scan.scan import ScanConfig, scan

    _make_room(out)
    config = demo_config(seed)
    with progress_bar("training") as progress:
        trained = train(replace(config, steps=steps or config.steps), out, progress)
    command = shlex.join(["normscope", *sys.argv[1:]])
    with (
        progress_bar("scanning") as progress,
        scan(trained.checkpoints, trained.run, ScanConfig(command=command), progress) as run,
    ):
        found = answer(run)
        page = report(run, out / "report.html")
    if json:
        print_json({"answer": found, "loss": trained.loss, "run": str(trained.run), "report": str(page)})
    else:
        _print(found, trained.run, page)


def _make_room(out: Path) -> None:
    """An earlier demo is replaced; a folder that a demo did not make is not ours to touch."""
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"{out} exists and was not made by 'normscope demo': choose another folder with --out"
        )
    for name in MADE_HERE:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


def _print(found: Answer, run: Path, page: Path) -> None:
    say = partial(console().print, markup=False)
    for sentence in found.sentences:
        say(sentence)
    say("")
    print_table(("", ""), [(name, number(value)) for name, value in found.facts.items()])
    say("")
    print_table(
        ("law", "R²", "AICc"), [(law.formula, law.r2, law.aicc) for law in found.laws], title="growth laws"
    )
    say("")
    say(f"run file  {run}")
    say(f"report    {page}  (open it in any browser)")
