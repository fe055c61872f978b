"""Findings from the sums of single tensors: equal checkpoints, stale tensors, NaN, zeros.

Also compares neighbours, and each checkpoint with the first, by these sums, where no sample can be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import Finding
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.run_files.weight_rows import number_rows, tensor_parts
from normscope.weights.soundness.findings import Array, listed
from normscope.weights.soundness.pairs import PairTable
from normscope.words import some

SUMS = ("sumsq", "dot", "sumsq_delta", "dot_init", "nonfinite")
STALE_SHARE = 0.01  # of all parameters: fewer may stay equal because of rounding
FURTHEST_STALE = 12  # checkpoints back that a tensor is compared with
STALE_MOVE = 1e-3  # relative move before and after; tensors that move less may well stay equal once


@dataclass(frozen=True, eq=False)
class TensorSums:
    """The sums of each counted tensor at each checkpoint of a stage, [checkpoints, tensors]."""

    sumsq: Array
    dot: Array
    sumsq_delta: Array
    dot_init: Array
    nonfinite: Array
    steps: NDArray[np.int64]
    tensors: tuple[TensorRow, ...]

    @property
    def numel(self) -> Array:
        """Elements of each tensor."""
        return np.array([tensor.numel for tensor in self.tensors], dtype=np.float64)


def load_sums(run: Run, stage: str, steps: Sequence[int]) -> TensorSums | None:
    """The sums of consecutive checkpoints at these steps of a stage; None if nothing was measured."""
    tensors = tuple(tensor for tensor in run.tensors() if tensor.tied_to is None)
    cube = np.full((len(SUMS), len(steps), len(tensors)), np.nan)
    measured = np.zeros(len(tensors), dtype=bool)
    for start, rows in _rows(run, stage, tensors):
        _fill_cube(cube[:, :, start:], measured[start:], rows, steps)
    complete = measured & np.isfinite(cube[0]).all(axis=0)
    if not complete.any():
        return None
    kept = tuple(tensor for tensor, keep in zip(tensors, complete, strict=True) if keep)
    sumsq, dot, delta, init, nonfinite = cube if complete.all() else cube[:, :, complete]
    return TensorSums(sumsq, dot, delta, init, nonfinite, np.array(steps, dtype=np.int64), kept)


def _rows(run: Run, stage: str, tensors: Sequence[TensorRow]) -> Iterator[tuple[int, Array]]:
    """The rows of some tensors at a time, with the place of the first; places instead of ids."""
    done = 0
    for ids in tensor_parts(run, stage, [tensor.id for tensor in tensors]):
        rows = number_rows(run, stage, ids, SUMS)
        rows[0] = np.searchsorted(ids, rows[0])
        yield done, rows
        done += len(ids)


def _fill_cube(cube: Array, measured: NDArray[np.bool_], rows: Array, steps: Sequence[int]) -> None:
    """Put the rows that compare a checkpoint with the one before into [sums, checkpoints, tensors]."""
    line = {step: i for i, step in enumerate(steps)}
    before = np.array([NO_PREVIOUS, *steps[:-1]], dtype=np.float64)
    at = np.array([line.get(int(step), -1) for step in rows[1]], dtype=np.intp)
    kept = (at >= 0) & (before[at] == rows[2])
    tensor = rows[0, kept].astype(np.intp)
    measured[tensor] = True
    cube[:, at[kept], tensor] = rows[3:, kept]


@dataclass(frozen=True, eq=False)
class FinitePart:
    """The part of the sums without NaN or infinity: checkpoints in `rows`, tensors in `columns`."""

    sums: TensorSums
    rows: NDArray[np.intp]
    columns: NDArray[np.bool_]

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps of these checkpoints."""
        return self.sums.steps[self.rows]

    @cached_property
    def sumsq(self) -> Array:
        """‖θ‖² of these tensors at each checkpoint."""
        return np.asarray(self.sums.sumsq[self.rows][:, self.columns].sum(axis=1))

    @cached_property
    def judged(self) -> dict[str, int]:
        """The tensors that direction is judged on, with their sizes: matrices that move, or all that do."""
        return {self.sums.tensors[i].name: self.sums.tensors[i].numel for i in self.judged_columns}

    @cached_property
    def judged_columns(self) -> NDArray[np.intp]:
        """The places of these tensors among those of the sums."""
        moves = np.ptp(self.sums.sumsq[self.rows], axis=0) > 0
        moves |= np.nan_to_num(self._from_previous(self.sums.sumsq_delta)).sum(axis=0) > 0
        matrix = np.array([sum(size > 1 for size in tensor.shape) > 1 for tensor in self.sums.tensors])
        moving = self.columns & moves
        return np.flatnonzero(moving & matrix if (moving & matrix).any() else moving)

    def _from_previous(self, values: Array) -> Array:
        """Sums that compare each checkpoint but the first with the one before; NaN if that was left out."""
        neighbours = np.diff(self.rows) == 1
        return np.where(neighbours[:, None], values[self.rows[1:]], np.nan)

    def _from_first(self, values: Array) -> Array:
        """Sums that compare each checkpoint but the first with the first; NaN if that was left out."""
        later = values[self.rows[1:]]
        return np.asarray(later if self.rows[0] == 0 else np.full_like(later, np.nan))

    def table(self) -> PairTable:
        """The comparison of neighbours, and of each checkpoint with the first; NaN for all other pairs."""
        n, judged = len(self.rows), self.judged_columns
        sumsq = self.sums.sumsq[self.rows][:, judged]
        dot, delta = (
            self._from_previous(values)[:, judged] for values in (self.sums.dot, self.sums.sumsq_delta)
        )
        init = self._from_first(self.sums.dot_init)[:, judged]
        away = np.maximum(sumsq[1:] + sumsq[0] - 2 * init, 0.0)
        squared, cosine, shared = (np.full((n, n), np.nan) for _ in range(3))
        later = np.arange(1, n)
        near = (sumsq[:-1] + dot, sumsq[:-1], sumsq[1:])
        first = (init, np.broadcast_to(sumsq[0], sumsq[1:].shape), sumsq[1:])
        sides = (
            (np.zeros(n - 1, dtype=int), away, first),
            (later - 1, delta, near),
        )
        for earlier, moved, (inner, one, other) in sides:
            numel = self.sums.numel[judged]
            _fill(squared, earlier, later, moved.sum(axis=1))
            _fill(cosine, earlier, later, _mean(inner, np.sqrt(one * other), numel))
            _fill(shared, earlier, later, _mean(inner, np.minimum(one, other), numel))
        for table, value in ((squared, 0.0), (cosine, 1.0), (shared, 1.0)):
            np.fill_diagonal(table, value)
        return PairTable(self.steps, squared, cosine, shared)


def _fill(table: Array, rows: NDArray[np.intp], columns: NDArray[np.intp], values: Array) -> None:
    table[rows, columns] = table[columns, rows] = values


def _mean(inner: Array, size: Array, numel: Array) -> Array:
    """The mean of inner/size over the tensors, at most 1, weighted by their sizes; zeros do not count."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(size > 0, np.clip(inner / size, -1, 1), 0.0)
        return np.asarray((shares * numel).sum(axis=1) / ((size > 0) * numel).sum(axis=1))


def finite_part(sums: TensorSums) -> FinitePart:
    """Leave out tensors with NaN; if they are most of the model, the checkpoints that have NaN."""
    bad = sums.nonfinite > 0
    finite: NDArray[np.bool_] = ~np.any(bad, axis=0)
    if sums.numel[finite].sum() >= sums.numel.sum() / 2:
        return FinitePart(sums, np.arange(len(sums.steps)), finite)
    return FinitePart(sums, np.flatnonzero(~bad.any(axis=1)), np.ones(len(finite), dtype=np.bool_))


def find_in_tensors(sums: TensorSums, digests: Mapping[int, str | None]) -> list[Finding]:
    """Findings about single tensors and about equal checkpoints; `digests` by step."""
    return [*_duplicates(sums, digests), *_stale(sums), *_nonfinite(sums), *_zero(sums)]


def same_digest(digests: Mapping[int, str | None]) -> list[list[int]]:
    """Groups of steps whose files have equal digests."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for step, digest in digests.items():
        if digest:
            groups[digest].append(step)
    return [steps for steps in groups.values() if len(steps) > 1]


def duplicate(steps: Sequence[int], how: str) -> Finding:
    """The finding that these steps have the same weights.

    The first update of a warm-up often has a learning rate of 0, so steps 0 and 1 may be equal.
    """
    confidence = 0.4 if max(steps) <= 1 else 1.0
    return Finding("duplicate", tuple(steps), f"{listed(steps)} have the same weights: {how}", confidence)


def _duplicates(sums: TensorSums, digests: Mapping[int, str | None]) -> list[Finding]:
    """Checkpoints whose sums are equal to the last bit in every tensor."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for i in range(len(sums.steps)):
        init = np.nan_to_num(sums.dot_init[i])
        groups[np.concatenate([sums.sumsq[i], init]).tobytes()].append(i)
    found = []
    for members in groups.values():
        neighbours = [j for i, j in pairwise(members) if j == i + 1]
        apart = any(sums.sumsq_delta[j].sum() > 0 for j in neighbours)
        if len(members) < 2 or apart or not sums.sumsq[members[0]].any():
            continue
        steps = [int(sums.steps[i]) for i in members]
        files = len({digests.get(step) for step in steps} - {None}) == 1
        how = f"all {len(sums.tensors)} tensors have equal sums" + (
            ", and the files are equal" if files else ""
        )
        found.append(duplicate(steps, how))
    return found


def _stale(sums: TensorSums) -> list[Finding]:
    """Tensors that are as they were at an earlier checkpoint, though they moved: a shard not written.

    They must have moved in between, or, if the checkpoints are neighbours, before and after.
    """
    moved = sums.sumsq_delta
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.sqrt(moved / sums.sumsq)
    moves = np.where(np.isfinite(relative), relative, 0.0) > STALE_MOVE
    found = []
    for j in range(1, len(sums.steps)):
        if not moved[j].sum() > 0:
            continue
        for lag in range(1, min(j, FURTHEST_STALE) + 1):
            still = _as_before(sums, j, lag) & _moved_around(moves, j, lag)
            share = sums.numel[still].sum() / sums.numel.sum()
            if share >= STALE_SHARE and not still[sums.numel > 0].all():
                found.append(_stale_finding(sums, j, lag, still))
                break
    return found


def _as_before(sums: TensorSums, j: int, lag: int) -> NDArray[np.bool_]:
    """Tensors whose sums are equal to the last bit at j and `lag` checkpoints before."""
    if lag == 1:
        return np.asarray(sums.sumsq_delta[j] == 0)
    same = sums.sumsq[j] == sums.sumsq[j - lag]
    known = ~np.isnan(sums.dot_init[j])
    return np.asarray(same & known & (sums.dot_init[j] == sums.dot_init[j - lag]) & (sums.sumsq[j] > 0))


def _moved_around(moves: NDArray[np.bool_], j: int, lag: int) -> NDArray[np.bool_]:
    if lag > 1:
        return np.asarray(moves[j - lag + 1 : j + 1].any(axis=0))
    if j < 2 or j + 1 >= len(moves):
        return np.zeros(moves.shape[1], dtype=np.bool_)
    return np.asarray(moves[j - 1] & moves[j + 1])


def _stale_finding(sums: TensorSums, j: int, lag: int, still: NDArray[np.bool_]) -> Finding:
    share = float(sums.numel[still].sum() / sums.numel.sum())
    names = [sums.tensors[i].name for i in np.flatnonzero(still)]
    steps = (int(sums.steps[j - lag]), int(sums.steps[j]))
    when = "before and after" if lag == 1 else "in between"
    evidence = (
        f"{some(names)} ({share:.0%} of the parameters) are equal at {listed(steps)}, while the "
        f"rest moved and they moved {when}: a part of one checkpoint was not written"
    )
    return Finding("stale", steps, evidence, 0.9, {"tensors": len(names), "share": share})


def _nonfinite(sums: TensorSums) -> list[Finding]:
    bad = sums.nonfinite > 0
    if not bad.any():
        return []
    steps = [int(step) for step in sums.steps[bad.any(axis=1)]]
    names = [sums.tensors[i].name for i in np.flatnonzero(bad.any(axis=0))]
    count = int(sums.nonfinite.max(axis=0).sum())
    evidence = f"{listed(steps)}: {count} values are NaN or infinite, in {some(names)}"
    return [Finding("nonfinite", tuple(steps), evidence, 1.0, {"values": count, "tensors": len(names)})]


def _zero(sums: TensorSums) -> list[Finding]:
    """Tensors that become zero, and matrices that are always zero; many are initialised to zero."""
    zero = (sums.sumsq == 0) & (sums.numel > 0) & (sums.nonfinite == 0)
    before = np.logical_or.accumulate(~zero, axis=0)
    lost = zero & before
    groups: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for i in np.flatnonzero(lost.any(axis=0)):
        groups[tuple(int(step) for step in sums.steps[lost[:, i]])].append(sums.tensors[i].name)
    found = [
        Finding(
            "zero", steps, f"{listed(steps)}: {some(names)} became all zero", 1.0, {"tensors": len(names)}
        )
        for steps, names in groups.items()
    ]
    always = [t.name for t, z in zip(sums.tensors, zero.all(axis=0), strict=True) if z and len(t.shape) > 1]
    if always and len(sums.steps) > 1:
        steps = tuple(int(step) for step in sums.steps)
        evidence = f"{some(always)} are all zero at every checkpoint: never trained, or never saved"
        found.append(Finding("zero", steps, evidence, 0.6, {"tensors": len(always)}))
    return found
