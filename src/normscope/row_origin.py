"""Who wrote a weight row, a monitor or a scan or both, and the statements by which each writes its own.

The column `origin` has the bit MONITOR or SCAN for each that wrote the row. A row with both has the sums of
the scan beside the gradients and rates of the monitor. Rows of earlier releases have no origin: a monitor
wrote no maximum and no ⟨θ₀, θ⟩, a scan no gradients and no rates.
"""

from __future__ import annotations

from functools import cache

MONITOR, SCAN = 1, 2

ORIGIN = (
    f"coalesce(origin, CASE WHEN absmax IS NULL AND dot_init IS NULL THEN {MONITOR} "
    f"WHEN grad_sumsq IS NULL AND lr IS NULL THEN {SCAN} ELSE {MONITOR | SCAN} END)"
)
"""The origin of a weight row, also in a file of an earlier release."""
LIVE_ROWS = f"{ORIGIN} = {MONITOR}"
"""The condition for weight rows that a monitor wrote and no scan."""
SCANNED_ROWS = f"({ORIGIN} & {SCAN}) != 0"
"""The condition for weight rows whose sums are those of a saved checkpoint."""
ONLY_SCANNED = f"{ORIGIN} = {SCAN}"
"""The condition for weight rows that a scan wrote and no monitor."""
BOTH = f"{ORIGIN} = {MONITOR | SCAN}"
"""The condition for weight rows that a monitor and a scan wrote."""

KEY = ("step", "prev_step", "tensor")
SUMS = ("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite")
APPLIED = ("grad_sumsq", "grad_dot", "lr", "weight_decay")
"""What only a monitor writes."""
LIVE_COLUMNS = (*KEY, *SUMS, *APPLIED)
"""What a monitor writes, in the order of `Run.write_live`."""
AT_ONCE = 64
"""Rows in one statement of a monitor. SQLite's thread then runs 100 µs without Python's lock."""
SAME = 2e-5
"""How far two sums of the same squares may differ, relatively."""

_COLUMNS = f"stage, {', '.join((*KEY, *SUMS))}"
UPSERT_SUMS = (
    f"INSERT INTO weight({_COLUMNS}, origin) VALUES({','.join('?' * 10)}, {SCAN}) ON CONFLICT DO UPDATE "
    f"SET {', '.join(f'{name} = excluded.{name}' for name in SUMS)}, origin = {ORIGIN} | {SCAN}"
)
"""Write the sums of a scan; an existing row keeps what only a monitor writes."""

CLEAR_APPLIED = f"{', '.join(f'{name} = NULL' for name in APPLIED)}, origin = {SCAN}"
"""The assignments that make a row of both one of the scan alone."""


@cache
def upsert_live(rows: int) -> str:
    """The statement that writes this many rows of a monitor.

    Where a scan has measured the same parameters at that step, its sums stay and the row is of both. If the
    parameters are others, the scan's belong to a training that went back: the row is the monitor's alone.
    """
    same = f"{SCANNED_ROWS} AND abs(excluded.sumsq - sumsq) <= {SAME} * sumsq"
    sums = ", ".join(f"{name} = CASE WHEN {same} THEN {name} ELSE excluded.{name} END" for name in SUMS)
    applied = ", ".join(f"{name} = excluded.{name}" for name in APPLIED)
    row = f"(?1,{','.join('?' * len(LIVE_COLUMNS))},{MONITOR})"
    return (
        f"INSERT INTO weight(stage, {', '.join(LIVE_COLUMNS)}, origin) VALUES{','.join([row] * rows)} "
        f"ON CONFLICT DO UPDATE SET {sums}, {applied}, "
        f"origin = CASE WHEN {same} THEN {MONITOR | SCAN} ELSE {MONITOR} END"
    )
