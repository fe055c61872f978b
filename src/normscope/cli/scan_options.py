"""The options of `normscope scan`, and the groups that it takes together."""

from __future__ import annotations

from typing import Annotated

import typer

from normscope.cli.option_groups import option

Skip = Annotated[list[str] | None, option("--skip", "GLOB", "Tensors to leave out; can be repeated.")]
Keep = Annotated[
    list[str] | None,
    option("--keep", "GLOB", "Tensors to measure although they look like constants; can be repeated."),
]
Workers = Annotated[
    int | None, option("--workers", "N", "Threads, or requests at a time. [default: as many as help]", min=1)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be read; measure nothing.")]
Follow = Annotated[
    bool, typer.Option("--follow", help="Keep running, and measure new checkpoints when they are complete.")
]
Add = Annotated[
    bool, typer.Option("--add", help="The series continues the one in the run file, in another place.")
]
Verify = Annotated[bool, typer.Option("--verify", help="Read all again, and compare it with the run file.")]


def tensors(skip: Skip = None, keep: Keep = None) -> None:
    """What a scan leaves out and what it keeps."""


def scan_modes(
    dry_run: DryRun = False, follow: Follow = False, add: Add = False, verify: Verify = False
) -> None:
    """Other ways to scan."""
