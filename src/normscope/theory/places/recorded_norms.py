"""Norms that a training of the lab recorded by itself, for a run file without weight statistics.

The lab records the norm of the body and of all parameters while it trains. Without checkpoints (the default
of a sweep) nothing else is known of the weights: no groups, no updates, no directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.errors import SeriesError, UsageError
from normscope.run import Run
from normscope.words import joined

SCALARS = {"body": "body_norm", "all": "norm"}  # scope → the name under which its norm is recorded
NOTE = (
    "these norms were recorded during training; no checkpoints were scanned, so there are no groups, updates "
    "or directions"
)


@dataclass(frozen=True, eq=False)
class RecordedNorm:
    """The finite norms of one scope over the steps; `notes` say where they come from and what is left out."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    notes: tuple[str, ...]


def has_only_norms(run: Run) -> bool:
    """Whether a run has no weight statistics, and norms that a training of the lab recorded."""
    if run.stages() or "config" not in run.meta:  # in another program's run, "norm" may be anything
        return False
    return bool(recorded_scopes(run))


def recorded_scopes(run: Run) -> list[str]:
    """The scopes whose norm was recorded, the body first; earlier releases recorded all parameters alone."""
    sql = "SELECT 1 FROM scalar WHERE name = ? LIMIT 1"
    return [scope for scope, name in SCALARS.items() if run.query(sql, (name,))]


def has_norms(run: Run) -> bool:
    """Whether a run has norms, from weight statistics or recorded by themselves."""
    return bool(run.stages()) or has_only_norms(run)


def recorded_norm(run: Run, scope: str) -> RecordedNorm:
    """The norm of a scope as it was recorded."""
    if scope not in SCALARS:
        raise UsageError(f"unknown scope {scope!r}: expected {' or '.join(SCALARS)}")
    rows = run.query("SELECT step, value FROM scalar WHERE name = ? ORDER BY step", (SCALARS[scope],))
    if not rows:
        (other,) = (name for name in SCALARS if name != scope)
        raise SeriesError(
            f"{run.path} contains no norm of the {scope}: choose the other one with scope={other!r} (--scope)"
        )
    points = np.array(rows, dtype=np.float64)
    finite = np.isfinite(points[:, 1])
    lost = len(points) - int(finite.sum())
    left_out = (f"{lost} of {len(points)} norms are not finite and were left out",) if lost else ()
    return RecordedNorm(points[finite, 0].astype(np.int64), points[finite, 1], (NOTE, *left_out))


def refuse_weight_options(run: Run, measure: str | None, by: str, stage: str | None) -> None:
    """Raise UsageError for an option that needs weight statistics."""
    given = {
        f"measure={measure!r}": measure not in (None, "norm"),
        f"by={by!r}": by != "total",
        f"stage={stage!r}": bool(stage),
    }
    unused = [option for option, is_given in given.items() if is_given]
    if unused:
        raise UsageError(
            f"{joined(unused)} cannot be used with {run.path}, which has only the norms that were recorded "
            "during training: leave it out, or train with checkpoints (--save log:10) and scan them"
        )
