"""Every argument and option of the command line, defined once, and the groups that commands take together.

A group is a function whose parameters are the options; `option_groups` gives them to a command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from normscope.cli.option_groups import argument, option

# -- what a command reads ------------------------------------------------------------

RunArgument = Annotated[Path, argument("RUN", "A run file.")]
SERIES = (
    "A run file, the folder of a training run, a cell of a sweep (grid@lr=0.01), a log with steps and norms "
    "(CSV, JSON, TensorBoard, MLflow, Parquet, trainer_state.json), or a bundled series (t5-base)."
)
SeriesArgument = Annotated[str, argument("SOURCE", SERIES)]
FirstSeriesArgument = Annotated[str, argument("A", SERIES)]
SecondSeriesArgument = Annotated[str, argument("B", SERIES)]
ReportArgument = Annotated[str, argument("SOURCE", f"{SERIES[:-1]}; or a folder made by 'normscope sweep'.")]
CHECKPOINTS = "A folder of checkpoints, files, a glob, or a URL (hf://OWNER/NAME for the Hugging Face hub)"
CheckpointsArgument = Annotated[list[str], argument("SOURCE", f"{CHECKPOINTS}.")]
AuditArgument = Annotated[list[str], argument("SOURCE", f"{CHECKPOINTS}; or a run file.")]
MODEL = "A Hugging Face folder, a GGUF file, a hub id, or my_model.py:build"
ModelsArgument = Annotated[
    list[str],
    argument("SOURCE", f"{MODEL} (and the checkpoints to load into it); or a folder of checkpoints."),
]
CheckpointSteps = Annotated[
    str | None, option("--steps", "N,N,...", "Steps of the checkpoints, in order: 0,1000,2000.")
]
NamePattern = Annotated[
    str | None,
    option(
        "--pattern",
        "REGEX",
        "Read step, epoch, stage and tokens from the names: 'model_(?P<epoch>\\d+)_'.",
    ),
]
Revisions = Annotated[
    str | None, option("--revisions", "GLOB", "Revisions of a hub model: 'step*'; or commits:BRANCH.")
]

# -- which numbers of a run -----------------------------------------------------------

MEASURES = ("norm", "rms", "cosine", "update", "alignment", "distance", "growth", "radial", "diffusive")
BUDGET = "budget"  # growth, radial and diffusive together: columns of a table, and no single series


def _measure(*names: str) -> Any:
    text = f"Measure of a run ({', '.join(names)}) or column of a log. [default: norm]"
    return option("--measure -m --column", "NAME", text, *names)


Measure = Annotated[str | None, _measure(*MEASURES)]
LogColumn = Annotated[
    str | None,
    option("--column -m --measure", "NAME", "Column of a log. [default: the only one that can be the norm]"),
]
ShownMeasure = Annotated[str | None, _measure(*MEASURES, BUDGET)]
By = Annotated[
    str,
    option(
        "--by",
        "GROUPS",
        "One result for each: total, layer, role, component or tensor.",
        *("total", "layer", "role", "component", "tensor"),
    ),
]
Scope = Annotated[
    str | None,
    option(
        "--scope",
        "NAME",
        "Parameters to count: body (without embeddings and output head) or all. [default: body]",
        *("body", "all"),
    ),
]
Stage = Annotated[str | None, option("--stage", "NAME", "Which stage, if the run has several.")]
Since = Annotated[int, option("--since", "STEP", "Leave out earlier steps.")]
Until = Annotated[int | None, option("--until", "STEP", "Leave out later steps.")]
SEED = "Seed of all random numbers; the same seed gives the same result."
Seed = Annotated[int, option("--seed", "N", SEED)]
NO_SEED = "Refused: a forecast uses no random numbers."
NoSeed = Annotated[int, option("--seed", "N", NO_SEED, hidden=True)]

# -- how a model is run ---------------------------------------------------------------

Device = Annotated[
    str | None,
    option(
        "--device",
        "NAME",
        "cuda, mps or cpu. [default: the first of them that is available]",
        *("cuda", "mps", "cpu"),
    ),
]
Dtype = Annotated[
    str | None,
    option(
        "--dtype",
        "NAME",
        "float32, float64, bfloat16 or float16. [default: the model's own]",
        *("float32", "float64", "bfloat16", "float16"),
    ),
]
Text = Annotated[
    Path | None,
    option("--text", "FILE", "Sentences to run the model on, one per line. [default: bundled English prose]"),
]
Ids = Annotated[
    Path | None,
    option(
        "--ids", "FILE", "Token ids instead of text: .npy [n, length], .npz, or .jsonl (a list per line)."
    ),
]
Sentences = Annotated[
    int | None,
    option("--sentences", "N", "Number of sentences, or rows of ids. [default: 100; homogeneity: 8]", min=1),
]
Tokenizer = Annotated[
    str | None, option("--tokenizer", "NAME", "Folder or hub id of the tokenizer. [default: the model's own]")
]
ExampleSentence = Annotated[
    str | None,
    option(
        "--sentence", "TEXT", "Your sentence to show attention on in the report. [default: one of the text]"
    ),
]
Baseline = Annotated[bool, typer.Option(help="Also measure a random model of the same shape.")]
Heads = Annotated[bool, typer.Option(help="Also measure attention heads.")]
Similarity = Annotated[
    bool,
    typer.Option("--similarity", help="Also compare the layers of a series: CKA and PWCCA of their states."),
]
Scale = Annotated[
    list[float] | None,
    option(
        "--scale",
        "X",
        "Power of two that approximates the limit; can be repeated, and the first is reported. "
        "[default: chosen by climbing]",
    ),
]
Blocks = Annotated[
    str | None,
    option(
        "--blocks",
        "PATTERN",
        "Modules that are the layers, if they are not found: 'stages.*.blocks.*'.",
    ),
]
At = Annotated[float, option("--at", "X", "Scale the model by this power of two first: a larger norm.")]
Scales = Annotated[
    str | None,
    option("--scales", "LIST", "The scales of the curve, such as 1:10 or 1,2.5,10. [default: 1,2,4,…,256]"),
]
Reference = Annotated[
    float | None, option("--reference", "C", "The scale whose states stand for the limit. [default: 16384]")
]

# -- how training continues, for a forecast -------------------------------------------

SCHEDULES = ("constant", "linear", "cosine", "inverse-sqrt", "wsd")
To = Annotated[int | None, option("--to", "STEP", "The step to forecast.")]
Threshold = Annotated[
    float | None,
    option(
        "--threshold",
        "X",
        "Say when this value is passed; without --to, up to three times the last step.",
    ),
]
BacktestFlag = Annotated[
    bool,
    typer.Option("--backtest", help="Forecast the last step from earlier parts of the series, and compare."),
]
LaterRate = Annotated[
    str | None,
    option(
        "--lr",
        "X",
        "Learning rate from now on, or a schedule from step 0: cosine:3e-4:1e-5:100000. "
        "[default: the last recorded one]",
    ),
]
PlanFile = Annotated[
    str | None,
    option("--plan", "FILE", "A table with the columns step, lr and perhaps weight_decay."),
]
LaterDecay = Annotated[
    float | None, option("--weight-decay", "X", "Weight decay from now on. [default: the last recorded one]")
]
LaterSchedule = Annotated[
    str | None,
    option(
        "--schedule",
        "NAME",
        "Learning rate from now on: constant, linear, cosine, inverse-sqrt, wsd, "
        "or a CSV file with the columns step and lr. [default: constant]",
        *SCHEDULES,
    ),
]
Momentum = Annotated[
    float | None,
    option("--momentum", "X", "Adam's β₁, or the momentum of SGD, where not recorded. [default: 0.9]"),
]

# -- how a watch works --------------------------------------------------------

Every = Annotated[
    float | None, option("--every", "SECONDS", "Seconds between two updates. [default: 2]", min=0.1)
]
Once = Annotated[bool, typer.Option("--once", help="Print the state once and end, as in a pipe.")]

# -- what a command writes ------------------------------------------------------------

RunFile = Annotated[Path | None, option("--run -r", "FILE", "Run file to write the results to.")]
Output = Annotated[Path, option("--output -o", "PATH", "File or folder to write.")]
OpenFlag = Annotated[bool, typer.Option("--open", help="Open the report in the browser.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]


# -- groups -----------------------------------------------------------------------------


def selection(
    measure: Measure = None,
    scope: Scope = None,
    stage: Stage = None,
    since: Since = 0,
    until: Until = None,
) -> None:
    """Which numbers of a source a command uses."""


def extent(scope: Scope = None, stage: Stage = None, since: Since = 0, until: Until = None) -> None:
    """Which parameters and steps of a source a command uses."""


def placement(device: Device = None, dtype: Dtype = None) -> None:
    """Where a model runs, and its precision."""


def sentences(
    text: Text = None, ids: Ids = None, sentences: Sentences = None, tokenizer: Tokenizer = None
) -> None:
    """What a model is run on."""


def example(sentence: ExampleSentence = None) -> None:
    """What attention is shown on."""


def series(steps: CheckpointSteps = None, pattern: NamePattern = None, revisions: Revisions = None) -> None:
    """How the steps of a series are read."""


def refresh(every: Every = None, once: Once = False) -> None:
    """How often a watch looks at the run."""


def limit(
    baseline: Baseline = True,
    heads: Heads = True,
    similarity: Similarity = False,
    scale: Scale = None,
    blocks: Blocks = None,
) -> None:
    """What is measured of a network, and at which scales."""


def plan(
    lr: LaterRate = None,
    weight_decay: LaterDecay = None,
    schedule: LaterSchedule = None,
    momentum: Momentum = None,
    table: PlanFile = None,
) -> None:
    """How training continues."""
