"""normscope demo: train a small model here, measure everything, write the report."""

from __future__ import annotations

import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from normscope.cli.option_groups import option
from normscope.cli.options import JsonFlag, Output, Seed
from normscope.cli.output import console, number, print_json, print_table, progress_bar
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.theory.answer import Answer

EXAMPLES = ("normscope demo", "normscope demo -o my-demo --seed 1")
MARK = ".normscope-demo"  # marks a folder that a demo made, and that the next demo may clear
MADE_HERE = ("checkpoints", "data", "config.json", "report.html", "run.db", "state.pt")
Steps = Annotated[int | None, option("--steps", "N", "Number of updates. [default: 1500]", min=10)]


def demo(
    output: Output = Path("demo"),
    seed: Seed = 0,
    steps: Steps = None,
    json: JsonFlag = False,
) -> None:
    """Train a small model and report on it.

    Trains a transformer on English prose for about a minute, measures saturation and attention on held-out
    text meanwhile, scans its checkpoints, fits the growth laws and writes a report. An earlier demo in the
    same folder is replaced.
    """
    from dataclasses import replace

    from normscope.lab.demo import demo_config
    from normscope.lab.one_thread import one_thread
    from normscope.lab.training.train import train
    from normscope.theory.answer import answer
    from normscope.views.reports.report import report
    from normscope.weights.scan.scan import ScanConfig, scan

    _make_room(output)
    config = demo_config(seed)
    with progress_bar("training") as progress, one_thread():
        trained = train(replace(config, steps=steps or config.steps), output, progress=progress)
    command = shlex.join(["normscope", *sys.argv[1:]])
    with (
        progress_bar("scanning") as progress,
        scan(trained.checkpoints, trained.run, ScanConfig(command=command), progress=progress) as run,
    ):
        found = answer(run)
        page = report(run, output / "report.html")
    if json:
        print_json({"answer": found, "loss": trained.loss, "run": str(trained.run), "report": str(page)})
    else:
        _print(found, trained.run, page)


def _make_room(folder: Path) -> None:
    """Delete an earlier demo; refuse a folder that a demo did not make."""
    if folder.exists() and not (folder / MARK).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists and was not made by 'normscope demo': choose another folder with --output"
        )
    for name in MADE_HERE:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


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
