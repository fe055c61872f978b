"""What `normscope saturate` says about predictions: the task in the saturated network, and replaced heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.cli.option_groups import option
from normscope.cli.output import console, print_table
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.network.step_predictions import PredictionOptions

KINDS = ("saturated", "mean", "zero")
SHOWN = 10
Task = Annotated[
    bool, typer.Option("--task", help="Measure loss, accuracy and agreement of the saturated network.")
]
Ablate = Annotated[
    str | None,
    option(
        "--ablate",
        "KINDS",
        "Replace each head by its saturated self, its mean or zero, and measure what changes: some of "
        "saturated,mean,zero, or all.",
        "all",
        *KINDS,
    ),
]
Document = Mapping[str, Any]


def predictions(task: Task = False, ablate: Ablate = None) -> None:
    """What is measured of a model's predictions."""


def prediction_options(task: bool, ablate: str | None) -> PredictionOptions:
    """Return what is measured of a model's predictions."""
    from normscope.network.step_predictions import PredictionOptions

    words = [word.strip() for word in ablate.split(",")] if ablate is not None else []
    kinds: Any = KINDS if words == ["all"] else tuple(dict.fromkeys(words))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"--ablate takes some of {','.join(KINDS)}, or all; got {unknown[0]!r}")
    return PredictionOptions(task, kinds)


def print_predictions(tasks: Sequence[Document], ablations: Sequence[Document]) -> None:
    """Print the task in the saturated network, and the heads that matter most."""
    for document in tasks:
        _print_task(document)
    for document in ablations:
        _print_ablations(document)


def _print_task(document: Document) -> None:
    names = ["network", "rescaled_loss", "accuracy", "sentence_accuracy", "agreement", "agreement_error"]
    if document["task"] == "states":
        names = ["network", "cosine", "cosine_error", "moved"]
    rows = [[_short(network[name]) for name in names] for network in document["networks"]]
    title = (
        f"\nthe task ({document['task']}, {document['positions']:,} positions) in the model and in its "
        f"saturated network at {document['scale']:g}:"
    )
    console().print(title, markup=False)
    print_table([name.replace("_", " ") for name in names], rows)


def _print_ablations(document: Document) -> None:
    states = document["task"] == "states"
    names = ["moved", "turned"] if states else ["divergence", "changed", "loss_change", "loss_change_error"]
    if document["loss"] is None:
        names = [name for name in names if not name.startswith("loss")]
    heads = sorted(document["heads"], key=lambda head: -(head[names[0]] or 0.0))[:SHOWN]
    columns = ["kind", "layer", "head", *names]
    total = len({(head["module"], head["head"]) for head in document["heads"]})
    console().print(f"\n{total} heads replaced; those that matter most:", markup=False)
    rows = [[_short(head[name]) for name in columns] for head in heads]
    print_table([name.replace("_", " ") for name in columns], rows)


def _short(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value
