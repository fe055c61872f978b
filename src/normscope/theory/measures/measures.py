"""The measures that follow from the additive sums of a run file, for any grouping of its tensors.

The sums of a group are the sums over its tensors, so tensors are grouped here, after the scan. With θ′
the previous checkpoint and Δ = θ − θ′:

    norm       √‖θ‖²                              rms        √(‖θ‖²/numel)
    update     ‖Δ‖                                cosine     (‖θ′‖² + ⟨θ′,Δ⟩) / (‖θ′‖·‖θ‖)
    alignment  ⟨θ′,Δ⟩ / (‖θ′‖·‖Δ‖)                distance   ‖θ − θ₀‖
    growth     ‖θ‖² − ‖θ′‖²  =  radial 2⟨θ′,Δ⟩ + diffusive ‖Δ‖², exactly

Only distance subtracts nearly equal numbers: it is computed as ‖θ‖² − 2⟨θ₀,θ⟩ + ‖θ₀‖², with an error
of about 1e-4·‖θ‖.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope._spectrum_rows import LARGEST_MEASURES
from normscope.anatomy import Place, in_scope, scope_used
from normscope.errors import RunFileError, UsageError
from normscope.run import Run, TensorRow
from normscope.run_files.sum_columns import PAIRS, saved_steps, stage_columns
from normscope.theory.measures.group_sums import MEASURES, Grouped, GroupSums
from normscope.theory.measures.time_series import Series
from normscope.words import by_layer

Array = NDArray[np.float64]

GROUPINGS: Mapping[str, Callable[[TensorRow], str]] = {
    "total": lambda tensor: "total",
    "layer": lambda tensor: Place(tensor.component, tensor.layer, tensor.role, known=True).group,
    "role": lambda tensor: tensor.role,
    "component": lambda tensor: tensor.component,
    "tensor": lambda tensor: tensor.name,
}
COMPOUND = {"budget": ("growth", "radial", "diffusive")}


def run_series(
    run: Run, measure: str = "norm", *, by: str = "total", scope: str = "body", stage: str | None = None
) -> list[Series]:
    """One series per group: the values of a measure at the steps where it has one."""
    if measure in MEASURES:
        grouped = group(run, by=by, scope=scope, stage=stage)
        table = _Columns(grouped.steps, grouped.groups, grouped.measure(measure), grouped.scope)
    elif measure in run.measure_names():
        table = _recorded_by_plugin(run, measure, by, scope, stage)
    else:
        raise _unknown_measure(run, measure)
    found = []
    for column, name in enumerate(table.groups):
        known = np.isfinite(table.values[:, column])
        if known.any():
            values = table.values[known, column]
            found.append(Series(name, table.steps[known], values, unit=measure, scope=table.scope))
    return found


def _unknown_measure(run: Run, measure: str) -> UsageError:
    if measure in COMPOUND:
        parts = ", ".join(COMPOUND[measure])
        return UsageError(f"{measure!r} stands for several measures: choose one of {parts}")
    known = ", ".join([*MEASURES, *COMPOUND])
    plugins = run.measure_names()
    also = f"; plugins recorded {', '.join(plugins)} in this run" if plugins else ""
    return UsageError(f"unknown measure {measure!r}: known are {known}{also}")


@dataclass(frozen=True)
class _Columns:
    """Values [steps, groups] of one measure, NaN where there is none."""

    steps: NDArray[np.int64]
    groups: tuple[str, ...]
    values: Array
    scope: str


def _recorded_by_plugin(run: Run, measure: str, by: str, scope: str, stage: str | None) -> _Columns:
    """Means of recorded values over the tensors of each group; NaN where one of them has no value.

    Of measures of attention heads, the largest.

    Tensors that were never measured in this stage (a measure of matrices leaves out vectors) are
    not part of the group. A training of the lab may have recorded a measure and no weight statistics.
    """
    alone = not run.stages() and not stage
    stage = "" if alone else stage_of(run, stage)
    rows = run.query("SELECT step, tensor, value FROM measure WHERE stage = ? AND name = ?", (stage, measure))
    measured = {tensor for _, tensor, value in rows if value is not None}
    everything = [row for row in run.tensors() if row.tied_to is None] if alone else _measured(run, stage)
    tensors = [tensor for tensor in tensors_in_scope(everything, scope) if tensor.id in measured]
    names = _group_names(by, tensors)
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    ids, groups = [tensor.id for tensor in tensors], _order(by, names)
    kept = np.isin(table[:, 1], ids)
    steps, row = np.unique(table[kept, 0].astype(np.int64), return_inverse=True)
    column = {tensor: i for i, tensor in enumerate(ids)}
    values = np.full((len(steps), len(ids)), np.nan)
    values[row, [column[int(tensor)] for tensor in table[kept, 1]]] = table[kept, 2]
    index = np.array([groups.index(name) for name in names], dtype=np.int64)
    if measure in LARGEST_MEASURES:
        found = np.stack([values[:, index == i].max(axis=1) for i in range(len(groups))], axis=1)
    else:
        found = _add(values, index, len(groups)) / np.bincount(index, None, len(groups))
    return _Columns(steps, groups, found, scope_of(everything, scope))


def group(
    run: Run, *, by: str = "total", scope: str = "body", stage: str | None = None, pairs: str | None = None
) -> Grouped:
    """The sums of a run, added up over the tensors of each group.

    `pairs` says what θ′ is: the previous checkpoint ("checkpoints"), or the step before in a live run
    ("updates"). The default is "checkpoints" if the run has at least two.
    """
    names = grouping(by)
    return group_by(run, lambda tensors: [names(each) for each in tensors], by, scope, stage, pairs)


def group_by(
    run: Run,
    naming: Callable[[list[TensorRow]], list[str]],
    by: str = "",
    scope: str = "body",
    stage: str | None = None,
    pairs: str | None = None,
) -> Grouped:
    """The same for groups of any kind: `naming` gives each tensor of the scope the name of its group."""
    stage = stage_of(run, stage)
    measured = _measured(run, stage)
    tensors = tensors_in_scope(measured, scope)
    names = naming(tensors)
    groups = _order(by, names)
    column = {name: i for i, name in enumerate(groups)}
    index = np.array([column[name] for name in names], dtype=np.int64)
    numel = np.bincount(index, [tensor.numel for tensor in tensors], len(groups)).astype(np.float64)
    saved = saved_steps(run, stage)
    sums = GroupSums(
        stage_columns(run, stage, [tensor.id for tensor in measured]),
        dict(zip((tensor.id for tensor in tensors), index.tolist(), strict=True)),
        len(groups),
        _pairs(pairs, saved),
        saved,
    )
    return Grouped(sums.steps, sums.previous, groups, scope_of(measured, scope), numel, sums)


def _pairs(pairs: str | None, saved: NDArray[np.int64]) -> str:
    if pairs not in (None, *PAIRS):
        raise UsageError(f"unknown pairs {pairs!r}: expected {' or '.join(PAIRS)}")
    return pairs or ("updates" if len(saved) < 2 else "checkpoints")


def stage_of(run: Run, stage: str | None) -> str:
    """The stage that is meant: the one given, or the only one."""
    stages = run.stages()
    if not stages:
        raise RunFileError(
            f"{run.path} contains no weight statistics yet: run 'normscope scan SOURCE --run {run.path}'"
        )
    if stage is None:
        if len(stages) > 1:
            names = ", ".join(stages)
            raise UsageError(f"the run has several stages ({names}): choose one with stage (--stage)")
        return stages[0]
    if stage not in stages and stages == [""]:
        raise UsageError(f"the run has no stages, so stage={stage!r} has no effect; leave it out")
    if stage not in stages:
        raise UsageError(f"the run has no stage {stage!r}: it has {', '.join(map(repr, stages))}")
    return stage


def _measured(run: Run, stage: str) -> list[TensorRow]:
    """The tensors that have sums in a stage; one that is tied to another is counted there."""
    sql = "SELECT id FROM tensor WHERE EXISTS(SELECT 1 FROM weight WHERE stage = ? AND tensor = id)"
    measured = {row[0] for row in run.query(sql, (stage,))}
    return [tensor for tensor in run.tensors() if tensor.id in measured and tensor.tied_to is None]


def tensors_in_scope(tensors: list[TensorRow], scope: str) -> list[TensorRow]:
    """The tensors of a scope."""
    return in_scope(tensors, scope, _role_and_shape)


def scope_of(tensors: list[TensorRow], scope: str) -> str:
    """The scope that `tensors_in_scope` really returns: body, all, or all (no body)."""
    return scope_used(tensors, scope, _role_and_shape)


def _role_and_shape(tensor: TensorRow) -> tuple[str, tuple[int, ...]]:
    return tensor.role, tensor.shape


def _group_names(by: str, tensors: list[TensorRow]) -> list[str]:
    return [grouping(by)(tensor) for tensor in tensors]


def grouping(by: str) -> Callable[[TensorRow], str]:
    """The function that gives a tensor its group."""
    if by not in GROUPINGS:
        raise UsageError(f"cannot group by {by!r}: known are {', '.join(GROUPINGS)}")
    return GROUPINGS[by]


def _add(values: Array, index: NDArray[np.int64], groups: int) -> Array:
    """Add up the columns of each group; NaN where any tensor of the group has no value."""
    out = np.zeros((values.shape[0], groups))
    np.add.at(out.T, index, values.T)
    return out


def _order(by: str, names: list[str]) -> tuple[str, ...]:
    """The groups: tensors in the order of the file, everything else in natural order."""
    return tuple(dict.fromkeys(names) if by == "tensor" else by_layer(set(names)))
