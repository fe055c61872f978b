"""normscope train: one run of the lab."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from normscope.cli.lab_options import CONFIG_OPTIONS, SIZE_NAMES, TRAINING_OPTIONS, lab_config
from normscope.cli.option_groups import gathers, option
from normscope.cli.options import Device, JsonFlag
from normscope.cli.output import console, number, print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from normscope.lab.config import TrainConfig
    from normscope.lab.training.train_result import TrainResult

EXAMPLES = (
    "normscope train --task dyck-2 --norm post --steps 3000 -o runs/dyck",
    "normscope train --text train.txt --tokenizer word --size tiny --schedule cosine --warmup 100",
)
Folder = Annotated[
    Path | None,
    option(
        "--output -o",
        "PATH",
        "Folder of the run; an unfinished run in it is continued. "
        "[default: a folder named after the run file, or after the settings in runs/]",
    ),
]
RunOfFolder = Annotated[
    Path | None, option("--run -r", "FILE", "Run file. [default: run.db in the folder of the run]")
]


@gathers(fields=CONFIG_OPTIONS | TRAINING_OPTIONS)
def train(
    fields: dict[str, Any],
    output: Folder = None,
    run: RunOfFolder = None,
    device: Device = None,
    json: JsonFlag = False,
) -> None:
    """Train a small transformer and measure it.

    It learns a formal language (--task) or a text. Its checkpoints are scanned into a run file. Killed and
    started again, a run continues where it was.
    """
    from normscope.lab.training.train import train as train_model
    from normscope.lab.unused_fields import refuse_unused
    from normscope.network.places.placement import Placement
    from normscope.schedule import NEVER

    config, given = lab_config({**fields, "device": str(Placement(device).torch_device())})
    refuse_unused(given, [config])
    folder = output or (run.with_suffix("") if run else _default_folder(config, fields["size"]))
    with progress_bar("training") as progress:
        result = train_model(config, folder, run=run, scan=config.save != NEVER, progress=progress)
    print_json(vars(result) | {"notes": result.notes}) if json else _print(result)


def _default_folder(config: TrainConfig, size: str | None) -> Path:
    source = re.sub(r"[^\w.-]+", "_", _short(config.data.dataset or config.data.task or config.data.text))
    return Path("runs") / f"{source}-{size or SIZE_NAMES[0]}-{config.model.norm}-{config.seed}"


def _short(source: str) -> str:
    """The name of a task, of a text without its folder, or of an object without its module."""
    return source.rpartition(":")[2] if ":" in source else Path(source).stem


def _print(result: TrainResult) -> None:
    rows: list[tuple[str, object]] = [
        ("parameters", f"{result.parameters:,}"),
        ("steps", result.steps),
        ("loss", result.loss),
        ("norm of the body at the start", result.body_norm_start),
        ("norm of the body at the end", result.body_norm_end),
        ("with embeddings and head at the start", result.norm_start),
        ("with embeddings and head at the end", result.norm_end),
        *((name.replace("_", " "), value) for name, value in result.evaluation.items()),
    ]
    print_table(("", ""), [(name, number(value)) for name, value in rows])
    say = console()
    for remark in result.remarks:
        say.print(f"\n{remark}", markup=False)
    say.print(f"\ncheckpoints  {result.checkpoints}\nrun file     {result.run}", markup=False)
    say.print(f"next: normscope report {result.run} -o report.html", markup=False)
    print_notes(result.notes)
