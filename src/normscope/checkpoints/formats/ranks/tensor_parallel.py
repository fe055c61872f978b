"""Joins what tensor-parallel ranks hold of each tensor: parts along an axis, copies once.

The parts are joined as they are read, in the order in which the whole tensor would be stored, so that
checkpoints saved by another number of ranks are compared element by element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from normscope.checkpoints.base import ITEM_SIZES, Tensor, quoted
from normscope.checkpoints.extents import ByteRange
from normscope.checkpoints.formats.ranks.copies_and_parts import (
    differing_copies,
    is_constant,
    refuse_duplicates,
    same_bytes,
)
from normscope.checkpoints.formats.ranks.rank_state import COPY_ALL, Held, Pieces, RankSource, StoredPiece
from normscope.checkpoints.formats.ranks.split_rules import COPY, SplitRule, find_rule
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.words import some


@dataclass(frozen=True)
class TensorParallel:
    """How the tensors of a layout are divided between ranks.

    `sections` is how many matrices the rows of a fused tensor are.
    """

    source: RankSource
    rules: tuple[SplitRule, ...]
    sections: int = 1
    notes: list[str] = field(default_factory=list)

    def join(self, names: Sequence[str], ranks: Sequence[Pieces]) -> Pieces:
        """The tensors that the ranks, called `names`, hold together."""
        if len(ranks) == 1:
            return dict(ranks[0])
        held = self._held(names, ranks)
        axes = {name: self._axis(name, pieces, held) for name, pieces in held.items()}
        self._refuse_unknown(axes)
        copies = {name: held[name] for name, axis in axes.items() if axis == COPY}
        parts = {name: held[name] for name, axis in axes.items() if axis not in (COPY, None)}
        self.notes.extend(differing_copies(copies, self.source))
        refuse_duplicates(parts, names, self.source)
        return self._joined(held, axes)

    def _held(self, names: Sequence[str], ranks: Sequence[Pieces]) -> dict[str, list[StoredPiece]]:
        """Name → what each rank holds of it; all must have the same tensors, of the same dtypes."""
        for name, rank in zip(names, ranks, strict=True):
            if lacking := sorted(ranks[0].keys() ^ rank.keys()):
                raise self.source.error(
                    f"{names[0]} and {name} do not hold the same tensors; only one of them has "
                    f"{some(quoted(lacking), 2)}. {COPY_ALL}"
                )
        held = {key: [rank[key] for rank in ranks] for key in ranks[0]}
        for key, pieces in held.items():
            if len({(piece.tensor.dtype, len(piece.tensor.shape)) for piece in pieces}) > 1:
                problem = f"the ranks hold {key[:200]!r} in different dtypes or numbers of axes. {COPY_ALL}"
                raise self.source.error(problem)
        return held

    def _axis(self, name: str, pieces: Sequence[StoredPiece], held: Held) -> int | None:
        """The axis of the parts, COPY, or None where nothing but the bytes can tell."""
        rule = find_rule(name, self.rules)
        if rule is not None and rule.axis < len(pieces[0].tensor.shape):
            return rule.axis
        return self._axis_by_width(name, pieces, held)

    def _refuse_unknown(self, axes: Mapping[str, int | None]) -> None:
        """With a few names that no rule knows the bytes decide; if most are unknown, it is another model."""
        unknown = [name for name, axis in axes.items() if axis is None]
        if 2 * len(unknown) > len(axes):
            raise self.source.error(
                f"{len(unknown)} of its {len(axes)} tensors have unknown names ({some(quoted(unknown), 2)}), "
                "so it is not clear which are parts and which copies. Convert it with "
                f"{self.source.tool} first; if each rank has a whole copy, give one of them."
            )

    def _axis_by_width(self, name: str, pieces: Sequence[StoredPiece], held: Held) -> int | None:
        """Meta divides an embedding by words or by features: the width of the model tells which."""
        if not name.endswith("tok_embeddings.weight") or "norm.weight" not in held:
            return None
        width, shape = held["norm.weight"][0].tensor.numel, pieces[0].tensor.shape
        columns = shape[-1] if len(shape) == 2 else 0
        return 0 if columns == width else 1 if columns * len(pieces) == width else None

    def _joined(self, held: Held, axes: Mapping[str, int | None]) -> Pieces:
        joined: Pieces = {}
        unknown: dict[str, list[str]] = {"equal": [], "parts": []}
        for name, pieces in held.items():
            axis = axes[name]
            if axis is None and same_bytes(pieces):
                unknown["equal"].append(name)
                axis = COPY
            if axis is None:
                unknown["parts"].append(name)
            joined[name] = pieces[0] if axis == COPY else self._together(name, pieces, axis, held)
        self._say_unknown(unknown, held)
        return joined

    def _together(
        self,
        name: str,
        pieces: Sequence[StoredPiece],
        axis: int | None,
        held: Held,
    ) -> StoredPiece:
        rule = find_rule(name, self.rules)
        sections = 1
        if rule is not None and rule.fused:
            sections = self.sections
        elif rule is not None and rule.gated and _is_gated(name, pieces, held):
            sections = 2
        try:
            return stacked(name, pieces) if axis is None else concatenated(name, pieces, axis, sections)
        except ValueError as error:
            problem = f"the parts of {name[:200]!r} do not fit together ({error}). {COPY_ALL}"
            raise self.source.error(problem) from None

    def _say_unknown(self, unknown: Mapping[str, list[str]], held: Held) -> None:
        if equal := unknown["equal"]:
            constant = [name for name in equal if is_constant(held[name][0])]
            doubt = f"; {len(constant)} are constant, so they may be parts after all" if constant else ""
            self.notes.append(
                f"{len(equal)} tensors of unknown names are equal on all ranks, and are counted once "
                f"({some(equal, 2)}){doubt}"
            )
        if parts := unknown["parts"]:
            self.notes.append(
                f"{len(parts)} tensors of unknown names differ between the ranks, and are counted as parts, "
                f"one after the other ({some(parts, 2)})"
            )


def _is_gated(name: str, pieces: Sequence[StoredPiece], held: Held) -> bool:
    """Whether the way into an MLP has twice the rows that its way out has columns."""
    out = name.replace("linear_fc1", "linear_fc2").replace("dense_h_to_4h", "dense_4h_to_h")
    stem, _, leaf = out.rpartition(".")
    back = held.get(f"{stem}.{leaf.replace('bias', 'weight')}")
    shape = back[0].tensor.shape if back else ()
    return len(shape) == 2 and pieces[0].tensor.shape[0] == 2 * shape[1]


def concatenated(name: str, pieces: Sequence[StoredPiece], axis: int, sections: int = 1) -> StoredPiece:
    """Parts along an axis; with sections, each part has some rows of each of several matrices."""
    shapes = [piece.tensor.shape for piece in pieces]
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        raise ValueError(f"shapes {list(shapes[0])} and {list(next(s for s in shapes if s != shapes[0]))}")
    if any(shape[axis] % sections for shape in shapes) or (sections > 1 and axis):
        raise ValueError(f"{shapes[0][axis]} rows of {sections} matrices")
    dtype = pieces[0].tensor.dtype
    total = sum(shape[axis] for shape in shapes)
    whole = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    row = math.prod(shapes[0][1:]) * ITEM_SIZES[dtype]
    tiles = []
    for section in range(sections):
        at = section * total // sections
        for piece, shape in zip(pieces, shapes, strict=True):
            size = shape[axis] // sections
            extent = ByteRange(piece.extent, section * size * row) if sections > 1 else piece.extent
            offsets = (*(0 for _ in shape[:axis]), at, *(0 for _ in shape[axis + 1 :]))
            tiles.append(Tile(offsets, (*shape[:axis], size, *shape[axis + 1 :]), extent))
            at += size
    storage = tuple(piece.tensor.storage for piece in pieces)
    return StoredPiece(Tensor(name, whole, dtype, storage), join_tiles(name, whole, ITEM_SIZES[dtype], tiles))


def stacked(name: str, pieces: Sequence[StoredPiece]) -> StoredPiece:
    """Parts along an axis of their own, in front: which of the others divides them is not known."""
    lifted = [
        StoredPiece(
            Tensor(name, (1, *piece.tensor.shape), piece.tensor.dtype, piece.tensor.storage), piece.extent
        )
        for piece in pieces
    ]
    return concatenated(name, lifted, 0)
