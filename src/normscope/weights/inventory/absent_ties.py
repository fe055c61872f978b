"""A tied tensor that some checkpoints store under both of its names and others under one.

`save_pretrained` drops a tied head, `torch.save` keeps it, and a conversion may store it twice. No
parameter is missing from the files that have one name only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from normscope.anatomy import OUTSIDE_BODY, locate
from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint

PIECE = 1 << 20  # bytes compared at a time
PEEK = 1 << 12  # bytes compared at a few places of the checkpoints that are not read whole


def tied_name(name: str, holders: Sequence[Checkpoint], others: Collection[str]) -> str | None:
    """Another name, one of `others`, that is the same tensor in all checkpoints that have `name`."""
    alike = [other for other in others if other != name and all(_alike(c, name, other) for c in holders)]
    for other in alike:
        if all(c.tensors[name].storage == c.tensors[other].storage for c in holders):
            return other
    outside = [o for o in alike if {locate(name).role, locate(o).role} & OUTSIDE_BODY]
    return next((other for other in outside if _equal_everywhere(holders, name, other)), None)


def _alike(checkpoint: Checkpoint, name: str, other: str) -> bool:
    own, found = checkpoint.tensors[name], checkpoint.tensors.get(other)
    return found is not None and (found.shape, found.dtype) == (own.shape, own.dtype) and own.dtype in WIDTHS


def _equal_everywhere(holders: Sequence[Checkpoint], name: str, other: str) -> bool:
    """Whether two matrices have equal bytes: in full at both ends of the series, at a few places between.

    A tied head that was trained apart differs at the last checkpoint at the latest. Vectors and
    matrices of one value (zeros) are equal without being tied.
    """
    if len(holders[0].tensors[name].shape) < 2 or _one_value(holders[0], name):
        return False
    ends = (holders[0], holders[-1])
    return all(equal_bytes(c, name, other, PEEK) for c in holders) and all(
        equal_bytes(c, name, other) for c in ends
    )


def equal_bytes(checkpoint: Checkpoint, name: str, other: str, peek: int | None = None) -> bool:
    """Whether two tensors of one size have the same bytes; with `peek`, as many at three places."""
    size = checkpoint.tensors[name].nbytes
    cuts = [*range(0, size, PIECE), size] if peek is None else []
    places = (0, size // 2, max(0, size - peek)) if peek is not None else ()
    ranges = [*pairwise(cuts), *((start, min(size, start + (peek or 0))) for start in places)]
    return all(bytes(checkpoint.read(name, *cut)) == bytes(checkpoint.read(other, *cut)) for cut in ranges)


def _one_value(checkpoint: Checkpoint, name: str) -> bool:
    tensor = checkpoint.tensors[name]
    width = WIDTHS[tensor.dtype]
    raw: Buffer = bytes(checkpoint.read(name, 0, min(tensor.nbytes, PEEK)))
    return len({bytes(raw[i : i + width]) for i in range(0, len(raw), width)}) < 2
