"""The newest record or checkpoint of a run in a few numbers, as `normscope watch` shows them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.errors import RunFileError
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.run_schema import ONLY_SCANNED
from normscope.theory.measures import formulas
from normscope.theory.measures.measures import grouping, scope_of, tensors_in_scope


@dataclass(frozen=True)
class LiveGroup:
    """One group at the newest step; None where it was not measured, NaN where values are not finite.

    `exponent` is p in norm ∝ tᵖ, between the last record of the first half of the run and now.
    """

    group: str
    norm: float
    exponent: float | None
    update: float | None
    alignment: float | None
    gradient: float | None
    nonfinite: int


@dataclass(frozen=True)
class LiveState:
    """The state of a training run at its newest record or checkpoint."""

    run: str
    stage: str
    """The last stage by name, of those with live records if there are any; empty for an ordinary run."""
    step: int
    previous: int | None
    """The step that update and alignment are counted from: one before, for a live record; None for none."""
    source: str
    """Who measured the newest step: monitor, or scan for a saved checkpoint."""
    records: int
    """Steps that were recorded or scanned."""
    seconds_ago: float
    """Since the last write to the file."""
    scope: str
    """The parameters that the groups count: body, all, or all (no body)."""
    norm_body: float | None
    """Without embeddings and output head; None if there is no body."""
    norm_all: float
    """The norm of all parameters."""
    scalars: Mapping[str, float]
    groups: Sequence[LiveGroup]
    """First the whole scope, called `total`."""
    alarms: Sequence[Mapping[str, Any]]


def live_state(run: Run, by: str = "layer", scope: str = "body") -> LiveState:
    """The newest record or checkpoint of the run's last stage, as a whole and by group."""
    with run.snapshot():  # a monitor may write between two queries
        return _live_state(run, by, scope)


def _live_state(run: Run, by: str, scope: str) -> LiveState:
    group_of = grouping(by)
    stage = _last_stage(run)
    step, records = run.query("SELECT MAX(step), COUNT(DISTINCT step) FROM weight WHERE stage = ?", (stage,))[
        0
    ]
    if step is None:
        raise RunFileError(
            f"{run.path} contains no record of a live run and no checkpoint yet: normscope.Monitor and "
            "'normscope scan' write them"
        )
    sql = "SELECT MAX(step) FROM weight WHERE stage = ? AND step <= ? AND step > 0"
    half = run.query(sql, (stage, step // 2))[0][0]
    tensors = run.tensors()
    names = {tensor.id: group_of(tensor) for tensor in tensors_in_scope(tensors, scope)}
    now, before = (_Sums.by_group(run, stage, at, names) for at in (step, half))
    sql = "SELECT name, value, MAX(step) FROM scalar WHERE stage = ? GROUP BY name"
    scalars = run.query(sql, (stage,))
    previous = _previous(run, stage, step)
    scanned = f"SELECT COUNT(*) FROM weight WHERE stage = ? AND step = ? AND NOT {ONLY_SCANNED}"
    return LiveState(
        run=str(run.path),
        stage=stage,
        step=step,
        previous=None if previous == NO_PREVIOUS else previous,
        source="monitor" if run.query(scanned, (stage, step))[0][0] else "scan",
        records=records,
        seconds_ago=max(0.0, time.time() - run.path.stat().st_mtime),
        scope=scope_of(tensors, scope),
        norm_body=_norm(run, stage, step, tensors, "body") if scope_of(tensors, "body") == "body" else None,
        norm_all=_norm(run, stage, step, tensors, "all"),
        scalars={name: math.nan if value is None else value for name, value, _ in scalars},
        groups=[_group(name, sums, before.get(name), step, half) for name, sums in now.items()],
        alarms=run.artifacts("alarm").get(stage, []),
    )


def _last_stage(run: Run) -> str:
    """The last stage by name, of those with live records if there are any."""
    stages = run.stages() or [""]
    live = f"SELECT DISTINCT stage FROM weight WHERE NOT {ONLY_SCANNED} ORDER BY stage"
    return str(([row[0] for row in run.query(live)] or stages)[-1]) if len(stages) > 1 else stages[0]


def _previous(run: Run, stage: str, step: int) -> int:
    """The step that the newest is compared with: the one before it if a monitor recorded it."""
    sql = "SELECT MAX(prev_step) FROM weight WHERE stage = ? AND step = ?"
    return int(run.query(sql, (stage, step))[0][0])


def _norm(run: Run, stage: str, step: int, tensors: list[TensorRow], scope: str) -> float:
    """The norm of a whole scope at one step."""
    names = {tensor.id: scope for tensor in tensors_in_scope(tensors, scope)}
    return _Sums.by_group(run, stage, step, names)["total"].norm


@dataclass
class _Sums:
    """The sums of a group; None as long as no tensor has them."""

    sumsq: float = 0.0
    nonfinite: int = 0
    dot: float | None = None
    sumsq_delta: float | None = None
    grad_sumsq: float | None = None

    @property
    def norm(self) -> float:
        """‖θ‖; NaN if there are values that are not finite, which the sum leaves out."""
        return math.nan if self.nonfinite else math.sqrt(self.sumsq)

    @classmethod
    def by_group(cls, run: Run, stage: str, step: int | None, names: Mapping[int, str]) -> dict[str, _Sums]:
        """The sums of the total and of each group at one step, ordered by name.

        A tensor may have two rows, of a monitor and of a scan: the one of the later previous step counts.
        """
        columns = ("sumsq", "nonfinite", "dot", "sumsq_delta", "grad_sumsq")
        sql = f"SELECT tensor, prev_step, {', '.join(columns)} FROM weight WHERE stage = ? AND step = ?"
        rows = sorted(run.query(sql, (stage, step)), key=lambda row: (row[0], -row[1]))
        found: dict[str, _Sums] = {"total": cls(), **{name: cls() for name in sorted(set(names.values()))}}
        seen: set[int] = set()
        for tensor, _, *values in rows:
            if tensor not in names or tensor in seen:
                continue
            seen.add(tensor)
            for name in {"total", names[tensor]}:
                for column, value in zip(columns, values, strict=True):
                    if value is not None:
                        setattr(found[name], column, (getattr(found[name], column) or 0) + value)
        return found


def _group(name: str, now: _Sums, before: _Sums | None, step: int, half: int | None) -> LiveGroup:
    gradient = None if now.grad_sumsq is None else math.sqrt(now.grad_sumsq)
    if now.nonfinite:
        nan = math.nan
        update = None if now.sumsq_delta is None else nan
        return LiveGroup(name, nan, nan, update, update, gradient, now.nonfinite)
    exponent = alignment = None
    if before is not None and half and half < step and before.sumsq > 0 and now.sumsq > 0:
        exponent = None if before.nonfinite else _exponent(now.sumsq / before.sumsq, step / half)
    if now.dot is not None and now.sumsq_delta:
        previous = formulas.sumsq_before(now.sumsq, now.dot, now.sumsq_delta)
        alignment = formulas.alignment(now.dot, previous, now.sumsq_delta) if previous > 0 else None
    update = None if now.sumsq_delta is None else math.sqrt(now.sumsq_delta)
    return LiveGroup(name, now.norm, exponent, update, alignment, gradient, now.nonfinite)


def _exponent(squares: float, steps: float) -> float:
    """p in norm ∝ tᵖ, from the ratios of two squared norms and of their steps."""
    return 0.5 * math.log(squares) / math.log(steps) if 0 < squares < math.inf else math.nan
