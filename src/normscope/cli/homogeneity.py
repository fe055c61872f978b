"""normscope homogeneity: degree and scaling curves of a model."""

from __future__ import annotations

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
from normscope.cli.saturate import TextOption, TokenizerOption

if TYPE_CHECKING:
    from normscope.network.limit.homogeneity import Homogeneity


def homogeneity(
    source: Annotated[
        str, typer.Argument(help="A Hugging Face folder, a hub id, or my_model.py:build.", show_default=False)
    ],
    text: TextOption = None,
    sentences: Annotated[int, typer.Option(help="How many sentences to read.", min=1)] = 8,
    tokenizer: TokenizerOption = None,
    at: Annotated[
        float, typer.Option(help="Scale the model by this power of two first: the degree at a larger norm.")
    ] = 1.0,
    run: Annotated[
        Path | None, typer.Option("--run", "-r", help="Run file to write the scaling curves to.")
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    json: JsonFlag = False,
) -> None:
    """Measure by which power of its parameters' size a model's states grow."""
    from normscope.network.running.inputs import read_sentences
    from normscope.network.running.loading import Placement
    from normscope.network.running.models import Text
    from normscope.network.study import StudyConfig, study_homogeneity

    config = StudyConfig(run=run, placement=Placement(device, dtype))
    words = Text(read_sentences(text, sentences), tokenizer)
    with progress_bar("scaling") as progress:
        found = study_homogeneity(source, words, config, at, progress)
    if json:
        print_json({"degrees": found.degrees, "warnings": found.warnings})
    else:
        _print(found)


def _print(found: Homogeneity) -> None:
    say = partial(console().print, markup=False)
    names = ["layer", "module", "degree", "±", "Euler", "left over", "exists", "cosine"]
    rows = [
        [
            row.layer if row.layer >= 0 else None,
            row.module,
            *(round(value, 3) for value in (row.degree, row.high - row.degree, row.euler, row.residual)),
            "yes" if row.exists else "no",
            round(row.cosine[0], 3),
        ]
        for row in found.degrees
    ]
    print_table(names, rows, "degree k of f(x; cθ) = c^k f(x; θ), by slope and by Euler's identity")
    for warning in found.warnings:
        say(f"note: {printable(warning)}", style="yellow")
