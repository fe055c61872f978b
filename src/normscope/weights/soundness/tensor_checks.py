"""Findings from the sums of single tensors: equal checkpoints, stale tensors, NaN, zeros.

Also adds up the sums of all tensors to the path of the whole model, for `breaks`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import Finding
from normscope.run import NO_PREVIOUS, Run, TensorRow
from normscope.weights.soundness.findings import Array, listed
from normscope.weights.soundness.path import PairDistance, ParameterPath
from normscope.words import some

SUMS = ("sumsq", "dot", "sumsq_delta", "dot_init", "nonfinite")
STALE_SHARE = 0.01  # of all parameters: fewer may stay equal because of rounding
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
    previous = dict(zip(steps, [NO_PREVIOUS, *steps[:-1]], strict=True))
    sql = f"SELECT step, prev_step, tensor, {', '.join(SUMS)} FROM weight WHERE stage = ?"
    rows = [row for row in run.query(sql, (stage,)) if previous.get(row[0]) == row[1]]
    measured = {row[2] for row in rows}
    tensors = tuple(tensor for tensor in run.tensors() if tensor.id in measured)
    if not tensors:
        return None
    column = {tensor.id: i for i, tensor in enumerate(tensors)}
    line = {step: i for i, step in enumerate(steps)}
    cube = np.full((5, len(steps), len(tensors)), np.nan)
    for step, _, tensor, *sums in rows:
        cube[:, line[step], column[tensor]] = [np.nan if value is None else value for value in sums]
    complete = np.isfinite(cube[0]).all(axis=0)
    kept = tuple(tensor for tensor, keep in zip(tensors, complete, strict=True) if keep)
    if not kept:
        return None
    sumsq, dot, delta, init, nonfinite = cube[:, :, complete]
    return TensorSums(sumsq, dot, delta, init, nonfinite, np.array(steps, dtype=np.int64), kept)


@dataclass(frozen=True, eq=False)
class FinitePart:
    """The part of the sums without NaN or infinity: checkpoints before `end`, tensors in `columns`."""

    sums: TensorSums
    end: int
    columns: NDArray[np.bool_]

    @property
    def names(self) -> frozenset[str]:
        """The names of its tensors."""
        tensors = self.sums.tensors
        return frozenset(t.name for t, keep in zip(tensors, self.columns, strict=True) if keep)

    def path(self, exact: PairDistance | None = None, sampled: Array | None = None) -> ParameterPath:
        """The sums of its tensors, added up."""
        s = self.sums
        kept = (values[: self.end, self.columns] for values in (s.sumsq, s.dot, s.sumsq_delta, s.dot_init))
        sumsq, dot, delta, init = (values.sum(axis=1) for values in kept)
        return ParameterPath(s.steps[: self.end], sumsq, dot, delta, init, exact, sampled)


def finite_part(sums: TensorSums) -> FinitePart:
    """Leave out tensors with NaN; if they are most of the model, the checkpoints from the first NaN on."""
    bad = sums.nonfinite > 0
    finite: NDArray[np.bool_] = ~np.any(bad, axis=0)
    if sums.numel[finite].sum() >= sums.numel.sum() / 2:
        return FinitePart(sums, len(sums.steps), finite)
    return FinitePart(sums, int(np.flatnonzero(bad.any(axis=1))[0]), np.ones(len(finite), dtype=np.bool_))


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
    """Tensors that stay equal on one link and move on the links before and after: a shard not written."""
    moved = sums.sumsq_delta
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.sqrt(moved[1:] / sums.sumsq[1:])
    found = []
    for j in range(2, len(sums.steps) - 1):
        still = (moved[j] == 0) & (relative[j - 2] > STALE_MOVE) & (relative[j] > STALE_MOVE)
        share = sums.numel[still].sum() / sums.numel.sum()
        if share >= STALE_SHARE and moved[j].sum() > 0:
            names = [sums.tensors[i].name for i in np.flatnonzero(still)]
            steps = (int(sums.steps[j - 1]), int(sums.steps[j]))
            evidence = (
                f"{some(names)} ({share:.0%} of the parameters) are equal at {listed(steps)}, while the "
                "rest moved and they moved before and after: a part of one checkpoint was not written"
            )
            found.append(
                Finding("stale", steps, evidence, 0.9, {"tensors": len(names), "share": float(share)})
            )
    return found


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
