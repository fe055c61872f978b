"""How we read the checkpoints of a folder: every byte of every tensor, and its sums."""

import math
from pathlib import Path

import numpy as np

from normscope.checkpoints.arrays import as_tensor
from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.checkpoints.series.discovery import find_series
from normscope.checkpoints.storage.local import LocalFolder
from normscope.weights.sums.statistics import RunningSums, Stretch

from .mutant import Answer, Values

KEPT = 1 << 24
"""Bytes of a tensor up to which they are kept and compared; larger ones are only summed."""
PIECE = 1 << 22


def read_folder(folder: Path) -> Answer:
    """Open every checkpoint that is found, and read it as a scan does."""
    answer = Answer()
    for unit in find_series(LocalFolder(folder)).checkpoints:
        checkpoint = unit.open()
        try:
            answer.skipped.update(checkpoint.skipped)
            for name, tensor in checkpoint.tensors.items():
                read_tensor(answer, checkpoint, name, tensor, name)
            assert checkpoint.digest
        finally:
            checkpoint.close()
    return answer


def read_tensor(answer: Answer, checkpoint: Checkpoint, name: str, tensor: Tensor, called: str) -> None:
    """Read a tensor, and keep its values and sums under the name that it is called by."""
    size, kept = tensor.nbytes, bytearray()
    totals = RunningSums(1)
    for start in range(0, size, PIECE) if tensor.dtype in WIDTHS else ():
        stop = min(size, start + PIECE)
        data = checkpoint.read(name, start, stop)
        assert len(data) == stop - start, "a read of another length than asked for"
        totals.add(Stretch(tensor.dtype, None, None, [data], b"\1"), 0, 1 << 20)
        if size <= KEPT:
            kept += data
        checkpoint.drop(name, start, stop)
    answer.tensors[called] = Values(tensor.shape, bytes(kept), tensor.dtype)
    if tensor.dtype in WIDTHS:
        answer.sums[called] = tuple(totals.rows()[0])


def wrong_sums(answer: Answer, found: dict[str, tuple[float, float, int]] | None = None) -> str | None:
    """A sentence if the sums of a tensor (or those in `found`, of a scan) are not those of its values."""
    for name, values in answer.tensors.items():
        if name not in answer.sums or not values.data or (found is not None and name not in found):
            continue
        numbers = as_tensor(values.data, values.dtype).double().numpy()
        finite = numbers[np.isfinite(numbers)]
        with np.errstate(over="ignore"):
            largest, wrong = float(np.abs(finite).max(initial=0)), len(numbers) - len(finite)
            expected = (float(np.dot(finite, finite)), largest, wrong)
        sums = answer.sums[name]
        ours = (sums[0], sums[4], sums[5]) if found is None else found[name]
        close = math.isclose(ours[0], expected[0], rel_tol=1e-6, abs_tol=1e-300) or expected[0] == math.inf
        if not close or ours[1:] != expected[1:]:
            return f"the sums of {name[:80]!r} are {ours}, expected {expected}"
    return None
