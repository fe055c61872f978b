"""Spectral norms that a monitor has written, beside spectra of saved checkpoints, which are exact and win."""

from __future__ import annotations

from collections.abc import Iterable

from normscope.rows import MeasureRow, SpectrumRow
from normscope.run import Run

POWER = "power"
"""The method of a row that a monitor wrote."""
UNMEASURED = "none"
LIVE = f"(method = '{POWER}' OR (method = '{UNMEASURED}' AND detail LIKE '%\"live\"%'))"
"""The condition for spectra that a monitor wrote."""
LIVE_MEASURE = (
    f"(stage, step, tensor) IN (SELECT stage, step, tensor FROM spectrum WHERE kind = 'weights' AND {LIVE})"
)
"""The condition for measures that were made of them."""
CLOSE = 0.01
"""The error, relative to σ₁, up to which a value is a measure that curves are fitted to."""
MEASURES = ("spectral-norm", "stable-rank")


def write_live(run: Run, rows: Iterable[SpectrumRow]) -> None:
    """Write rows of a monitor, except where a checkpoint of that step was measured."""
    rows = list(rows)
    steps = {(row.stage, row.step) for row in rows}
    sql = (
        f"SELECT tensor, part FROM spectrum WHERE kind = 'weights' AND stage = ? AND step = ? AND NOT {LIVE}"
    )
    scanned = {(*place, *key) for place in steps for key in run.query(sql, place)}
    kept = [row for row in rows if (row.stage, row.step, row.tensor, row.part) not in scanned]
    run.write(kept)
    run.write([measure for row in kept for measure in _measures(row)])


def _measures(row: SpectrumRow) -> list[MeasureRow]:
    """What fits and figures read: of whole tensors, where the error is small."""
    value, error = row.spectral_norm, ((row.detail or {}).get("error") or {}).get("spectral_norm")
    if row.part >= 0 or value is None or error is None or not error <= CLOSE * value:
        return []
    found = zip(MEASURES, (value, row.stable_rank), strict=True)
    return [
        MeasureRow(row.step, row.tensor, name, each, row.stage) for name, each in found if each is not None
    ]


def delete_live_spectra(run: Run, step: int, stage: str) -> None:
    """Delete what a monitor wrote after a step, and the measures that came of it."""
    later = f"stage = ? AND step > ? AND {LIVE}"
    names = ", ".join(f"'{name}'" for name in MEASURES)
    pairs = f"SELECT step, tensor FROM spectrum WHERE kind = 'weights' AND {later}"
    given = (stage, step)
    run.delete_rows(
        "measure", f"stage = ? AND name IN ({names}) AND (step, tensor) IN ({pairs})", (stage, *given)
    )
    run.delete_rows("spectrum", later, given)
