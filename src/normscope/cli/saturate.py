"""normscope saturate: saturation by layer and head types, beside a random baseline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import (
    DeviceOption,
    DtypeOption,
    JsonFlag,
    console,
    print_json,
    print_table,
    printable,
    progress_bar,
)

if TYPE_CHECKING:
    from normscope.network.study import Study
    from normscope.run import HeadRow

SourceArgument = Annotated[
    list[str],
    typer.Argument(
        help="A Hugging Face folder, a hub id, a folder of such folders, or my_model.py:build "
        "(and the checkpoints to load into it).",
        show_default=False,
    ),
]
TextOption = Annotated[
    Path | None,
    typer.Option(help="Text to run the model on, one sentence a line; some English prose by default."),
]
TokenizerOption = Annotated[
    str | None, typer.Option(help="Folder or hub id of the tokenizer; the model's own by default.")
]


BaselineFlag = Annotated[bool, typer.Option(help="Measure a random model of the same kind beside it.")]
HeadsFlag = Annotated[bool, typer.Option(help="Measure attention heads too.")]
ScaleOption = Annotated[
    list[float] | None,
    typer.Option(help="Powers of two that stand for the limit; the first is reported. 1024 and 16384."),
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", "-r", help="Run file to write to; run.db for a series, none for a single model."),
]


def saturate(
    source: SourceArgument,
    text: TextOption = None,
    sentences: Annotated[int, typer.Option(help="How many sentences to read.", min=1)] = 100,
    tokenizer: TokenizerOption = None,
    baseline: BaselineFlag = True,
    heads: HeadsFlag = True,
    scale: ScaleOption = None,
    run: RunOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    json: JsonFlag = False,
) -> None:
    """Measure how close each layer is to its saturated limit, and which heads act as argmax or mean."""
    from normscope.network.limit.saturation import Limit
    from normscope.network.running.inputs import read_sentences
    from normscope.network.running.loading import Placement
    from normscope.network.running.models import Text
    from normscope.network.study import StudyConfig, study

    limit = Limit(scales=tuple(scale)) if scale else Limit()
    config = StudyConfig(limit, baseline, heads, run, Placement(device, dtype))
    with progress_bar("measuring") as progress:
        found = study(source, Text(read_sentences(text, sentences), tokenizer), config, progress)
    if json:
        print_json(
            {
                "layers": found.layers,
                "heads": found.heads,
                "warnings": found.warnings,
                "look_ahead": found.look_ahead,
            }
        )
    else:
        _print(found)


def _print(found: Study) -> None:
    several = len(found.steps) > 1
    names = ["step", "layer", "module", "trained", "± tokens", "random", "converged"][not several :]
    rows = [
        [
            row.step,
            row.layer,
            row.module,
            row.cosine,
            row.deviation,
            row.baseline,
            "yes" if row.converged else "no",
        ]
        for row in found.layers
    ]
    title = "saturation: mean cosine between f(x; θ) and its limit f(x; cθ)"
    print_table(names, [_rounded(row[not several :]) for row in rows], title)
    if found.heads:
        _print_heads([head for head in found.heads if head.step == found.steps[-1]])
    _print_notes(found)


def _print_heads(heads: list[HeadRow]) -> None:
    kinds = ("argmax", "mean", "mixed")
    counts = ", ".join(f"{sum(head.type == kind for head in heads)} {kind}" for kind in kinds)
    console().print(f"\n{len(heads)} heads: {counts}; the clearest of each type:", markup=False)
    shown = [
        head
        for kind in kinds
        for head in sorted((h for h in heads if h.type == kind), key=lambda h: (-h.margin, h.effective))[:3]
    ]
    names = ["type", "layer", "head", "margin", "positions", "split", "effective", "largest", "distance"]
    if len({head.module for head in heads}) > len({head.layer for head in heads}):  # encoder and decoder
        names.insert(1, "module")
    print_table(names, [_rounded([getattr(head, name) for name in names]) for head in shown])


def _print_notes(found: Study) -> None:
    say = partial(console().print, markup=False)
    for entry in found.look_ahead[-1:]:
        sight = "sees later tokens" if entry.sees_future else "does not see later tokens"
        say(f"\nposition t {sight} ({'causal' if entry.causal else 'not causal'} by design)", style="dim")
    for warning in found.warnings:
        say(f"note: {printable(warning)}", style="yellow")


def _rounded(row: Sequence[object]) -> list[object]:
    """Three decimals: more would be noise."""
    return [round(value, 3) if isinstance(value, float) else value for value in row]
