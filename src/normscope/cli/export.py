"""normscope export: the weight statistics as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normscope.cli.output import JsonFlag, console, print_json


def export(
    run: Annotated[Path, typer.Argument(help="A run file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write: .csv or .parquet.")] = Path(
        "weights.csv"
    ),
    json: JsonFlag = False,
) -> None:
    """Write every row of weight statistics to one flat file."""
    from normscope.export_file import export as write

    target = write(run, output)
    if json:
        print_json({"output": str(target), "bytes": target.stat().st_size})
    else:
        console().print(f"wrote {target} ({target.stat().st_size:,} bytes)", markup=False)
