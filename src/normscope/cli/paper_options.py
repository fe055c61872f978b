"""The arguments and options of `normscope paper`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normscope.cli.option_groups import argument, option

PaperArgument = Annotated[
    str,
    argument("ID", "arXiv id, DOI, OpenAlex or Semantic Scholar id, or a library: .bib, .ris, .json (CSL)."),
]
Page = Annotated[Path | None, option("--output -o", "FILE", "Write the page: one HTML file, works offline.")]
Export = Annotated[
    Path | None, option("--export", "FILE", "Write all works as .bib, .ris, .csv or .json (CSL-JSON).")
]
Corpus = Annotated[
    str,
    option(
        "--corpus",
        "WHAT",
        "Compare key terms with: bundled, neighbours, a .jsonl file, a folder of texts, or a library.",
        *("bundled", "neighbours"),
    ),
]
Summarize = Annotated[
    str | None,
    option("--summarize", "COMMAND", "Summary by your command: abstract on stdin, summary on stdout."),
]
Depth = Annotated[
    int, option("--depth", "N", "2: also works that the works around the paper cite.", min=1, max=2)
]
MaxWorks = Annotated[int, option("--max-works", "N", "Most works around the paper.", min=1)]
Offline = Annotated[bool, typer.Option("--offline", help="Ask nobody: use what is bundled or was kept.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="Ask again what was kept from before.")]
Results = Annotated[
    Path | None,
    option(
        "--results",
        "FILE",
        "Verdicts on the paper's claims. [default: replication/results.json, if it exists]",
    ),
]


def reading(corpus: Corpus = "bundled", summarize: Summarize = None) -> None:
    """What is said about the text of a paper."""


def network(
    depth: Depth = 1, max_works: MaxWorks = 500, offline: Offline = False, refresh: Refresh = False
) -> None:
    """How far to look for works, and whom to ask."""
