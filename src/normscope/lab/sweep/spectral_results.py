"""What a cell measured of singular values, by layer and step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from normscope.anatomy import Place
from normscope.rows import SpectrumRow
from normscope.run import Run
from normscope.words import by_layer

DIGITS = 8
MEANS = ("spectral_norm", "stable_rank", "effective_rank", "alpha")


def spectral_results(run: Run) -> dict[str, Any]:
    """Return means over the matrices of each layer at every measured step, and the largest spectral norm."""
    layers = {t.id: Place(t.component, t.layer, t.role, known=True).group for t in run.tensors()}
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in run.table(SpectrumRow):
        if row["kind"] == "weights":
            groups.setdefault((int(str(row["step"])), layers[int(str(row["tensor"]))]), []).append(dict(row))
    steps = sorted({step for step, _ in groups})
    names = by_layer({name for _, name in groups})
    places = [(step, name) for step in steps for name in names if (step, name) in groups]
    return {"spectrum": [_of_layer(*place, groups[place]) for place in places]}


def _of_layer(step: int, layer: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    largest = [row["spectral_norm"] for row in rows if row["spectral_norm"] is not None]
    return {
        "step": step,
        "layer": layer,
        "matrices": len(rows),
        "largest": _short(max(largest)) if len(largest) == len(rows) else None,
        **{name: _mean(row[name] for row in rows) for name in MEANS},
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean; null where a matrix has no such number."""
    found = list(values)
    known = [value for value in found if value is not None]
    return _short(fmean(known)) if len(known) == len(found) else None


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
