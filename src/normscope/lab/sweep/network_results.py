"""What a cell measured by running its network: saturation by layer, heads, and why some of it is missing."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from normscope.lab.training.train_result import saturation_error
from normscope.rows import HeadRow, SaturationRow
from normscope.run import Run
from normscope.table import Value

DIGITS = 8
LEFT_OUT = ("stage", "baseline", "attends")
"""The same in every row, measured by `saturate` alone, and too large for a document."""


def network_results(run: Run) -> dict[str, Any]:
    """Return the layers at all measured steps, and the heads at the first and the last.

    The fields of a row have the names that `saturate` gives them. `saturation_error` says why a
    measurement is missing; it is None if none is.
    """
    layers, heads = (_rows(run, kind) for kind in (SaturationRow, HeadRow))
    ends = {row["step"] for row in (*heads[:1], *heads[-1:])}
    return {
        "saturation": layers,
        "heads": [row for row in heads if row["step"] in ends],
        "saturation_error": saturation_error(run),
    }


def _rows(run: Run, kind: type[SaturationRow] | type[HeadRow]) -> list[dict[str, Any]]:
    names = [field.name for field in fields(kind) if field.name not in LEFT_OUT]
    table = run.table(kind)
    rows = [{name: _shortened(name, row[name]) for name in names} for row in table]
    return sorted(rows, key=lambda row: tuple(row[name] for name in ("step", "layer", "module")))


def _shortened(name: str, value: Value) -> Value:
    """Eight significant digits; null for what is not finite; a truth value for SQLite's 0 and 1."""
    if name == "converged":
        return bool(value)
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
