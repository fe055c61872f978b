"""normscope train: one run of the lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.cli.output import DeviceOption, JsonFlag, console, print_json, print_table, progress_bar
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.lab.config import TrainConfig
    from normscope.lab.training.trainer import TrainResult

Size = Annotated[str, typer.Option(help="pico, tiny, small, or paper: 12 layers, d 768, ff 512, 12 heads.")]
Task = Annotated[
    str | None,
    typer.Option(
        help="A formal language: anbn, anbncn, dyck-1, dyck-2, shuffle-dyck-2, majority, parity, first."
    ),
]
Text = Annotated[str | None, typer.Option(help="A UTF-8 file; prose that comes with Python by default.")]
Valid = Annotated[str | None, typer.Option(help="Held-out text; by default the last tenth of the text.")]
Tokens = Annotated[str | None, typer.Option("--tokenizer", help="byte, word or bpe.")]
Norm = Annotated[str | None, typer.Option(help="pre, x+f(LN x); paper, x+LN(f x); post, LN(x+f x).")]
Steps = Annotated[int | None, typer.Option(help="Updates to make.")]
Epochs = Annotated[float | None, typer.Option(help="Decide the steps by passes over the data.")]
Batch = Annotated[int | None, typer.Option(help="Sequences a batch.")]
Length = Annotated[int | None, typer.Option(help="Tokens a sequence; symbols of the longest word of a task.")]
Optimizer = Annotated[str | None, typer.Option(help="sgd, adam, adamw or adafactor.")]
Schedule = Annotated[str | None, typer.Option(help="constant, linear, cosine, inverse-sqrt or wsd.")]
Warmup = Annotated[int | None, typer.Option(help="Steps in which the learning rate rises.")]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same run.")]
Save = Annotated[str | None, typer.Option(help="When to save: log:10, every:100, never or 0,10,100.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other field of the config, as clip=1 or bias=off; repeatable."),
]
Saturation = Annotated[str | None, typer.Option(help="When to measure saturation and heads, as log:4.")]
RunFile = Annotated[
    Path | None, typer.Option("--run", "-r", help="Run file; checkpoints go to a folder beside it.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the run; an unfinished run there goes on.")
]


def train(
    task: Task = None,
    text: Text = None,
    valid: Valid = None,
    tokenizer: Tokens = None,
    size: Size = "pico",
    norm: Norm = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch: Batch = None,
    length: Length = None,
    optimizer: Optimizer = None,
    lr: Annotated[float | None, typer.Option(help="The learning rate, at its peak.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    schedule: Schedule = None,
    warmup: Warmup = None,
    seed: Seed = None,
    save: Save = None,
    saturation: Saturation = None,
    set_: Set = None,
    out: Out = None,
    run: RunFile = None,
    device: DeviceOption = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64 or bfloat16.")] = None,
    json: JsonFlag = False,
) -> None:
    """Train a small transformer on a formal language or a text, and measure its checkpoints."""
    given = {name: value for name, value in locals().items() if name not in NO_FIELDS}
    from normscope.lab.training.train import train as train_model
    from normscope.network.running.loading import Placement

    given["device"] = str(Placement(device).torch_device())
    config = lab_config(size, given, set_)
    folder = out or (run.with_suffix("") if run else _default_folder(config, size))
    with progress_bar("training") as progress:
        result = train_model(config, folder, progress, run=run, scan=True)
    if json:
        print_json({name: str(v) if isinstance(v, Path) else v for name, v in vars(result).items()})
    else:
        _print(result, config)


NO_FIELDS = {"size", "set_", "out", "run", "device", "json"}


def lab_config(size: str, given: dict[str, Any], assignments: list[str] | None) -> TrainConfig:
    """The config of a size with the options that were given, then `--set` on top."""
    from normscope.lab.config import TrainConfig, override
    from normscope.lab.model import SIZES

    if size not in SIZES:
        raise UsageError(f"--size is one of {', '.join(SIZES)}, not {size!r}")
    changes = {name: value for name, value in given.items() if value is not None}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set takes FIELD=VALUE, as --set clip=1; got {assignment!r}")
        changes[name.replace("-", "_")] = value
    return override(TrainConfig(model=SIZES[size]), changes)


def _default_folder(config: TrainConfig, size: str) -> Path:
    source = config.data.task or Path(config.data.text).stem
    return Path("runs") / f"{source}-{size}-{config.model.norm}-{config.seed}"


def _print(result: TrainResult, config: TrainConfig) -> None:
    rows: list[tuple[str, object]] = [
        ("parameters", f"{result.parameters:,}"),
        ("steps", result.steps),
        ("loss", result.loss),
        ("norm at the start", result.norm_start),
        ("norm at the end", result.norm_end),
        *((name.replace("_", " "), value) for name, value in result.evaluation.items()),
    ]
    print_table(("", ""), [(name, f"{v:.6g}" if isinstance(v, float) else str(v)) for name, v in rows])
    say = console()
    say.print(f"\ncheckpoints  {result.checkpoints}\nrun file     {result.run}", markup=False)
    say.print(f"next: normscope report {result.run} -o report.html", markup=False)
