"""Evidence for what ranks hold of one tensor, from their bytes: copies are equal, parts are not.

Equal bytes are only evidence where they could have differed: the biases of a new model are all zero, on every
rank, whether they are parts or copies. Large tensors, and those of remote files, are compared in samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from normscope.checkpoints.formats.ranks.rank_state import COPY_ALL, Held, RankSource, StoredPiece
from normscope.words import some

_WHOLE = 1 << 16
"""Bytes of a tensor up to which all of it is compared."""
_SPOT = 1 << 12
_FEW = 6
"""Tensors that are compared where every read is a request."""


def same_bytes(pieces: Sequence[StoredPiece]) -> bool:
    """Whether pieces are equal, as far as their samples tell."""
    first = pieces[0]
    alike = all((p.tensor.shape, p.tensor.dtype) == (first.tensor.shape, first.tensor.dtype) for p in pieces)
    return alike and len({sample(piece) for piece in pieces}) == 1


def is_constant(piece: StoredPiece) -> bool:
    """Whether all elements of the samples are equal, as in a bias that has not been trained yet."""
    width = piece.tensor.nbytes // max(1, piece.tensor.numel)
    data = sample(piece)
    return width == 0 or data == data[:width] * (len(data) // width)


def sample(piece: StoredPiece) -> bytes:
    """All bytes of a small tensor; the beginning, the middle and the end of a large one."""
    size = piece.tensor.nbytes
    if size <= _WHOLE:
        return bytes(piece.extent.read(0, size))
    middle = size // 2 // _SPOT * _SPOT
    return b"".join(bytes(piece.extent.read(at, at + _SPOT)) for at in (0, middle, size - _SPOT))


def compared(names: Iterable[str], pieces: Held) -> list[str]:
    """The tensors to compare: all of mapped files, a few spread over the model of others."""
    listed = list(names)
    if len(listed) <= _FEW or all(piece.extent.zero_copy for piece in pieces[listed[0]]):
        return listed
    return [listed[i * (len(listed) - 1) // (_FEW - 1)] for i in range(_FEW)]


def differing_copies(copies: Held, source: RankSource) -> tuple[str, ...]:
    """A note on copies that are not equal; CheckpointError if most are not: these are two models."""
    checked = compared(copies, copies)
    differ = [name for name in checked if not same_bytes(copies[name])]
    if 2 * len(differ) > len(checked):
        raise source.error(
            f"{len(differ)} of {len(checked)} tensors of which every rank should have a copy differ between "
            f"them ({some(differ, 2)}), so these ranks are of different steps or trainings. {COPY_ALL}"
        )
    if not differ:
        return ()
    return (
        f"{len(differ)} tensors of which every rank should have an equal copy differ between the ranks "
        f"({some(differ, 2)}); those of the first rank are counted",
    )


def refuse_duplicates(parts: Held, names: Sequence[str], source: RankSource) -> None:
    """CheckpointError if two ranks have the same bytes in all their parts: one is a copy of the other."""
    large = sorted(parts, key=lambda name: -parts[name][0].tensor.nbytes)[:_FEW]
    telling = [name for name in large if not all(map(is_constant, parts[name]))]
    seen: dict[bytes, str] = {}
    for i, rank in enumerate(names) if telling else ():
        digest = hashlib.blake2b(digest_size=16)
        for name in telling:
            digest.update(sample(parts[name][i]))
        other = seen.setdefault(digest.digest(), rank)
        if other != rank:
            raise source.error(
                f"{rank} has the same bytes as {other} in tensors that are divided between the ranks "
                f"({some(telling, 2)}), so it seems to be a copy. Copy each rank's own file."
            )
