"""normscope spectrum: singular values of the matrices of a series, in figures."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers, step_numbers
from normscope.cli.options import CheckpointsArgument, JsonFlag, RunFile, Scope, Seed, series
from normscope.cli.output import console, print_json, print_notes, print_table, progress_bar
from normscope.cli.spectrum_options import ExactFlag, SpectrumBy, SpectrumKind, TopValues, head_counts

if TYPE_CHECKING:
    from normscope.weights.spectrum.spectra_table import SpectraTable
    from normscope.weights.spectrum.spectrum import Spectra

EXAMPLES = (
    "normscope spectrum checkpoints/",
    "normscope spectrum checkpoints/ --of growth --by role",
    "normscope spectrum checkpoints/ --of weights --of update --exact",
    "normscope spectrum openai-community/gpt2 --of qk --of ov",
)
MOST_ROWS = 60  # lines of a table of tensors; --json has them all


@gathers(read=series, counts=head_counts)
def spectrum(
    source: CheckpointsArgument,
    read: dict[str, Any],
    counts: dict[str, Any],
    of: SpectrumKind = None,
    by: SpectrumBy = "layer",
    scope: Scope = None,
    exact: ExactFlag = False,
    top: TopValues = 32,
    seed: Seed = 0,
    run: RunFile = None,
    json: JsonFlag = False,
) -> None:
    """Measure in which directions the parameters grow.

    Singular values: spectral norm, ranks, power-law tail and bulk of each matrix at each checkpoint; of its
    updates, and of its growth since the first; and of what each attention head computes. The results of a
    series go into a run file (run.db by default), beside those of a scan; those of one model (a checkpoint,
    a hub id, my_model.py:build) only with --run.
    """
    from normscope.weights.scan.scan import ScanConfig
    from normscope.weights.spectrum.spectra_table import spectra_table
    from normscope.weights.spectrum.spectrum import spectrum as measure
    from normscope.weights.spectrum.spectrum_config import SpectrumConfig

    scan = ScanConfig(
        steps=step_numbers(read["steps"]),
        revisions=read["revisions"],
        pattern=read["pattern"],
        command=shlex.join(["normscope", *sys.argv[1:]]),
    )
    config = SpectrumConfig(tuple(of or ("weights",)), scope or "body", exact, top, seed, scan, **counts)
    with progress_bar("measuring") as progress:
        found = measure(source if len(source) > 1 else source[0], run, config, progress=progress)
    if json:
        print_json({"matrices": found.documents(), "notes": found.notes})
        return
    _print(spectra_table(found, by), found, run)


def _print(tables: list[SpectraTable], found: Spectra, run: Path | None) -> None:
    for table in tables:
        print_table(table.columns, table.rows[:MOST_ROWS], title=table.title)
        if len(table.rows) > MOST_ROWS:
            console().print(f"{MOST_ROWS} of {len(table.rows)} rows; --json has them all", style="dim")
    print_notes(found.notes)
    estimates = sum(row.method == "estimate" for row in found.rows)
    if estimates:
        share = f"{estimates} of {len(found.rows)} spectra are estimates"
        console().print(f"{share}: --json has their errors, --exact avoids them", style="dim")
    if (file := run or found.run) is not None:
        console().print(
            f"run file: {file}   (next: normscope fit {file} --measure {_measure(found)})", style="dim"
        )


def _measure(found: Spectra) -> str:
    kinds = {row.kind for row in found.rows}
    return (
        "qk-spectral-norm" if kinds == {"qk"} else "ov-spectral-norm" if kinds == {"ov"} else "spectral-norm"
    )
