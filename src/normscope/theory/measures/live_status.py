"""The newest record of a live run in a few numbers, as `normscope watch` shows them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.errors import RunFileError
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.theory.measures import formulas
from normscope.theory.measures.measures import grouping, scope_of, tensors_in_scope

# The rows that a monitor writes: single updates, and the state before the first.
LIVE = "stage = ? AND (prev_step = step - 1 OR prev_step = ?)"


@dataclass(frozen=True)
class LiveGroup:
    """One group at the newest step; None where it was not measured.

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
    """The state of a training run at its newest record."""

    run: str
    step: int
    records: int
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
    """The newest record of the run's last stage, as a whole and by group."""
    with run.snapshot():  # a monitor may write between two queries
        return _live_state(run, by, scope)


def _live_state(run: Run, by: str, scope: str) -> LiveState:
    group_of = grouping(by)
    stage = (run.stages() or [""])[-1]
    key = (stage, NO_PREVIOUS)
    ((step, records),) = run.query(f"SELECT MAX(step), COUNT(DISTINCT step) FROM weight WHERE {LIVE}", key)
    if step is None:
        raise RunFileError(f"{run.path} contains no record of a live run yet: normscope.Monitor writes them")
    ((last,),) = run.query("SELECT MAX(step) FROM weight WHERE stage = ?", (stage,))
    if last > step:  # the state before a first update, and no update: this is the first checkpoint of a scan
        raise RunFileError(
            f"{run.path} contains a scan and no record of a live run: 'normscope show {run.path}' prints it"
        )
    half = run.query(
        f"SELECT MAX(step) FROM weight WHERE {LIVE} AND step <= ? AND step > 0", (*key, step // 2)
    )[0][0]
    tensors = run.tensors()
    names = {tensor.id: group_of(tensor) for tensor in tensors_in_scope(tensors, scope)}
    now, before = (_Sums.by_group(run, key, at, names) for at in (step, half))
    scalars = run.query("SELECT name, value, MAX(step) FROM scalar WHERE stage = ? GROUP BY name", (stage,))
    return LiveState(
        run=str(run.path),
        step=step,
        records=records,
        seconds_ago=max(0.0, time.time() - run.path.stat().st_mtime),
        scope=scope_of(tensors, scope),
        norm_body=_norm(run, key, step, tensors, "body") if scope_of(tensors, "body") == "body" else None,
        norm_all=_norm(run, key, step, tensors, "all"),
        scalars={name: value for name, value, _ in scalars},
        groups=[_group(name, sums, before.get(name), step, half) for name, sums in now.items()],
        alarms=run.artifacts("alarm").get(stage, []),
    )


def _norm(run: Run, key: tuple[str, int], step: int, tensors: list[TensorRow], scope: str) -> float:
    """The norm of a whole scope at one step."""
    names = {tensor.id: scope for tensor in tensors_in_scope(tensors, scope)}
    return math.sqrt(_Sums.by_group(run, key, step, names)["total"].sumsq)


@dataclass
class _Sums:
    """The sums of a group; None as long as no tensor has them."""

    sumsq: float = 0.0
    nonfinite: int = 0
    dot: float | None = None
    sumsq_delta: float | None = None
    grad_sumsq: float | None = None

    @classmethod
    def by_group(
        cls, run: Run, key: tuple[str, int], step: int | None, names: Mapping[int, str]
    ) -> dict[str, _Sums]:
        """The sums of the total and of each group at one step, ordered by name."""
        columns = ("sumsq", "nonfinite", "dot", "sumsq_delta", "grad_sumsq")
        sql = f"SELECT tensor, {', '.join(columns)} FROM weight WHERE {LIVE} AND step = ?"
        found: dict[str, _Sums] = {"total": cls(), **{name: cls() for name in sorted(set(names.values()))}}
        for tensor, *values in run.query(sql, (*key, step)):
            for name in {"total", names[tensor]} if tensor in names else ():
                for column, value in zip(columns, values, strict=True):
                    if value is not None:
                        setattr(found[name], column, (getattr(found[name], column) or 0) + value)
        return found


def _group(name: str, now: _Sums, before: _Sums | None, step: int, half: int | None) -> LiveGroup:
    exponent = alignment = None
    if before is not None and half and half < step and before.sumsq > 0 and now.sumsq > 0:
        exponent = 0.5 * math.log(now.sumsq / before.sumsq) / math.log(step / half)
    if now.dot is not None and now.sumsq_delta:
        previous = formulas.sumsq_before(now.sumsq, now.dot, now.sumsq_delta)
        alignment = formulas.alignment(now.dot, previous, now.sumsq_delta) if previous > 0 else None
    update = None if now.sumsq_delta is None else math.sqrt(now.sumsq_delta)
    gradient = None if now.grad_sumsq is None else math.sqrt(now.grad_sumsq)
    return LiveGroup(name, math.sqrt(now.sumsq), exponent, update, alignment, gradient, now.nonfinite)
