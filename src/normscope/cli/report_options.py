"""The options of `normscope report`, and the groups that it takes together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normscope.cli.option_groups import argument, option
from normscope.cli.options import CHECKPOINTS, SERIES

ReportSources = Annotated[
    list[str],
    argument(
        "SOURCE",
        f"{CHECKPOINTS}, which is scanned first; {SERIES[0].lower()}{SERIES[1:-1]}; or a sweep's folder.",
    ),
]
SpectraFlag = Annotated[
    bool | None,
    typer.Option(help="Also measure singular values. [default: if they take less than 20 s]"),
]
SaturationFlag = Annotated[
    bool, typer.Option("--saturation", help="Also run the models: saturation by layer, and attention heads.")
]
SaturationText = Annotated[
    Path | None,
    option("--text", "FILE", "With --saturation: sentences, one per line. [default: bundled English prose]"),
]


def extras(
    spectra: SpectraFlag = None, saturation: SaturationFlag = False, text: SaturationText = None
) -> None:
    """What is measured beside the norms."""
