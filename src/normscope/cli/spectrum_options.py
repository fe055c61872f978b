"""The options of `normscope spectrum`."""

from __future__ import annotations

from typing import Annotated

import typer

from normscope.cli.option_groups import option

SpectrumKind = Annotated[
    list[str] | None,
    option(
        "--of",
        "KIND",
        "What is measured: weights, update (since the checkpoint before) or growth (since the first); can be "
        "repeated. [default: weights]",
        *("weights", "update", "growth"),
    ),
]
SpectrumBy = Annotated[
    str, option("--by", "GROUPS", "Rows of the table: layer, role or tensor.", *("layer", "role", "tensor"))
]
ExactFlag = Annotated[
    bool, typer.Option("--exact", help="All singular values of large matrices too, instead of estimates.")
]
TopValues = Annotated[int, option("--top", "N", "Largest singular values to keep of each matrix.", min=1)]
