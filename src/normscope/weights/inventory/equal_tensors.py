"""Tied parameters that a file stores twice: their sums agree to the last bit, at every checkpoint.

Equal bytes alone are no tie: deep-copied layers begin equal, and gains are all ones. Two tensors are
one parameter if they have moved together, in a direction of their own; an embedding and an output
head also if they have not moved. Sums alone do not decide: after steps of one size (Lion, signs of
gradients) different vectors have equal sums, so some bytes are compared, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from normscope.checkpoints.base import Checkpoint
from normscope.run import Run, TensorRow
from normscope.run_schema import SCANNED_ROWS
from normscope.weights.inventory.absent_ties import PEEK, equal_bytes
from normscope.words import some

_SUMS = "sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"
_SHARED = re.compile(r"(?:.*\.)?shared\.weight")
_DECODER_BIAS = re.compile(r"(?<![^.])decoder\.bias$")
_PARALLEL = 0.999
"""|cosine| between θ′ and Δ above which a move is only weight decay, which acts on all tensors alike."""

Rows = tuple[tuple[Any, ...], ...]


def tie_equal_tensors(run: Run, checkpoints: Sequence[Checkpoint] = ()) -> dict[str, str]:
    """Mark the tensors of a run file that are stored twice as tied; return name → the name that is counted.

    Their bytes are compared in those of the open `checkpoints` that have both. A note
    for people goes into the run file. Call inside `transaction()`, when all sums are there.
    """
    found: dict[str, str] = {}
    unclear: dict[str, str] = {}
    for tied, (kept, *others) in _equal_rows(run, checkpoints):
        for row in others:
            if tied:
                run.add_tensors([replace(row, tied_to=kept.id)])
                found[row.name] = kept.name
            elif len(row.shape) > 1:
                unclear[row.name] = kept.name
    notes = [*([_note(found)] if found else []), *([_unclear_note(unclear)] if unclear else [])]
    if notes:
        run.set_meta("notes", [*run.meta.get("notes", []), *notes])
    return found


def _note(found: dict[str, str]) -> str:
    shown = some([f"{name} is {kept}" for name, kept in found.items()])
    return f"{len(found)} tensors are stored twice with equal values and counted once: {shown}"


def _unclear_note(found: dict[str, str]) -> str:
    shown = some([f"{name} equals {kept}" for name, kept in found.items()], 1)
    return (
        f"{len(found)} matrices have the same values as another one ({shown}), and nothing shows yet whether "
        "they are shared or only begin equal: all are counted; if they are shared, leave the second ones out "
        "with --skip"
    )


def _equal_rows(run: Run, checkpoints: Sequence[Checkpoint]) -> list[tuple[bool, list[TensorRow]]]:
    """Groups of rows with equal sums, the one that is counted first; and whether they are one parameter."""
    groups: defaultdict[tuple[Any, ...], list[TensorRow]] = defaultdict(list)
    for rows in _alike_at_last(run):
        for row in rows:
            groups[row.shape, row.dtype, _sums(run, row)].append(row)
    return [
        (_is_tie(rows, sums), sorted(rows, key=lambda row: (row.role != "embedding", row.id)))
        for (_, _, sums), several in groups.items()
        for rows in _with_equal_bytes(several, checkpoints)
        if len(rows) > 1
    ]


def _with_equal_bytes(rows: Sequence[TensorRow], checkpoints: Sequence[Checkpoint]) -> list[list[TensorRow]]:
    """The rows in groups whose bytes agree, as far as they are looked at."""
    groups: list[list[TensorRow]] = []
    for row in rows:
        fits = (g for g in groups if all(_agree(c, g[0].name, row.name) for c in checkpoints))
        group = next(fits, None)
        if group is None:
            groups.append([row])
        else:
            group.append(row)
    return groups


def _agree(checkpoint: Checkpoint, name: str, other: str) -> bool:
    both = name in checkpoint.tensors and other in checkpoint.tensors
    return not both or equal_bytes(checkpoint, name, other, PEEK)


def _alike_at_last(run: Run) -> Iterable[list[TensorRow]]:
    """Rows of one shape whose last sums are equal: few, so that only theirs are read in full."""
    # SQLite takes the other columns from the row of the maximum.
    measured = f"dot_init IS NOT NULL AND {SCANNED_ROWS}"
    sql = f"SELECT tensor, sumsq, absmax, max(step) FROM weight WHERE {measured} GROUP BY tensor"
    last = {tensor: (sumsq, absmax) for tensor, sumsq, absmax, _ in run.query(sql)}
    groups: defaultdict[tuple[Any, ...], list[TensorRow]] = defaultdict(list)
    for row in run.tensors():
        if row.tied_to is None and row.id in last and not _all_alike(row, *last[row.id]):
            groups[row.shape, last[row.id]].append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def _all_alike(row: TensorRow, sumsq: float | None, absmax: float | None) -> bool:
    """Whether all elements have one size, such as zeros and ones: then equality says nothing."""
    if sumsq is None or absmax is None or row.numel < 2:
        return True
    return sumsq >= row.numel * (absmax * absmax) * (1 - 1e-6)  # a power would raise OverflowError


def _sums(run: Run, row: TensorRow) -> Rows:
    rows = f"SELECT stage, step, prev_step, {_SUMS} FROM weight WHERE tensor = ? AND {SCANNED_ROWS}"
    return tuple(run.query(f"{rows} ORDER BY stage, step, prev_step", (row.id,)))


def _is_tie(rows: Sequence[TensorRow], sums: Rows) -> bool:
    roles = {row.role for row in rows}
    named = _named_as_one([row.name for row in rows])
    return named or {"embedding", "head"} <= roles or any(_moved(*each[3:6]) for each in sums)


def _named_as_one(names: Sequence[str]) -> bool:
    """Whether the names say it: `shared.weight`, or `bias` and `decoder.bias` of one head (transformers)."""
    if any(_SHARED.fullmatch(name) for name in names):
        return True
    return len({_DECODER_BIAS.sub("bias", name) for name in names}) == 1


def _moved(sumsq: float | None, dot: float | None, delta: float | None) -> bool:
    """Whether a row compares two different checkpoints, and more than weight decay lies between them."""
    if not sumsq or dot is None or not delta:
        return False
    before = sumsq - 2 * dot - delta
    return before > 0 and abs(dot) < _PARALLEL * float(before * delta) ** 0.5
