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
        "What is measured: weights, update (since the checkpoint before), growth (since the first), or qk or "
        "ov of each attention head; can be repeated. [default: weights]",
        *("weights", "update", "growth", "qk", "ov"),
    ),
]
SpectrumBy = Annotated[
    str, option("--by", "GROUPS", "Rows of the table: layer, role or tensor.", *("layer", "role", "tensor"))
]
ExactFlag = Annotated[
    bool, typer.Option("--exact", help="All singular values of large matrices too, instead of estimates.")
]
TopValues = Annotated[int, option("--top", "N", "Largest singular values to keep of each matrix.", min=1)]


def head_counts(
    query_heads: Annotated[
        int | None, option("--query-heads", "N", "Attention heads, if no config.json says it.", min=1)
    ] = None,
    kv_heads: Annotated[
        int | None, option("--kv-heads", "M", "Heads of keys and values, if they are fewer.", min=1)
    ] = None,
    qkv_order: Annotated[
        str | None,
        option(
            "--qkv-order",
            "ORDER",
            "A fused projection: blocks (all queries, all keys, all values) or groups (per key head).",
            *("blocks", "groups"),
        ),
    ] = None,
) -> None:
    """What the config of a model usually says about its attention heads."""
