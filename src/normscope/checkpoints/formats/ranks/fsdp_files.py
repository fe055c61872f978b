"""FSDP states that each rank saved by itself, as verl does: `model_world_size_8_rank_0.pt` and so on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, Folder, Tensor
from normscope.checkpoints.extents import Extras, TableCheckpoint
from normscope.checkpoints.formats.ranks.copies_and_parts import differing_copies
from normscope.checkpoints.formats.ranks.distributed_tensors import LocalPart, local_parts
from normscope.checkpoints.formats.ranks.rank_state import Pieces, RankSource, StoredPiece
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.checkpoints.formats.torch.archives import PickledFile, locate_tensor, read_pickled
from normscope.checkpoints.formats.torch.nested_values import children, is_mapping, one_walk
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor
from normscope.checkpoints.formats.torch.state_dicts import WRAPPERS
from normscope.errors import CheckpointError

RANK_FILE = re.compile(r"(model)_world_size_([0-9]{1,5})_rank_([0-9]{1,5})\.pt")
_LAYOUT = "FSDP, one file per rank"
_TOOL = "verl's model_merger"


def open_fsdp_files(folder: Folder, files: Sequence[str]) -> Checkpoint:
    """Open the model that the ranks' files hold together."""
    source = RankSource(folder.name.rstrip("/"), _LAYOUT, _TOOL)
    matches = [match for name in files if (match := RANK_FILE.fullmatch(name))]
    found, sizes = {int(match[3]): match for match in matches}, {int(match[2]) for match in matches}
    count = max(sizes)
    if len(sizes) > 1:
        raise source.error(f"its files are of {min(sizes)} and of {count} ranks. Keep those of one training.")
    if missing := [rank for rank in range(count) if rank not in found]:
        lacking = [f"model_world_size_{count}_rank_{rank}.pt" for rank in missing]
        raise source.missing(len(found), lacking)
    ranks = [read_pickled(folder.file(found[rank][0])) for rank in range(count)]
    joining = _Joining(source, count)
    for rank, pickled in enumerate(ranks):
        with one_walk():
            joining.add(rank, pickled)
    pieces = joining.joined()
    tensors = {name: piece.tensor for name, piece in pieces.items()}
    extents = {name: piece.extent for name, piece in pieces.items()}
    extras = Extras(joining.skipped, None, differing_copies(joining.copies(), source))
    return TableCheckpoint("fsdp", [pickled.file for pickled in ranks], tensors, extents, extras)


class _Joining:
    """Collects the parts of each tensor, by where they belong; the same part of two ranks is a copy."""

    def __init__(self, source: RankSource, ranks: int) -> None:
        self.source, self.ranks = source, ranks
        self.parts: dict[str, dict[tuple[int, ...], list[StoredPiece]]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.skipped: dict[str, str] = {}

    def add(self, rank: int, pickled: PickledFile) -> None:
        for name, value in _entries(pickled.pickle.value):
            try:
                parts = local_parts(value, rank, self.ranks)
            except (ValueError, TypeError, IndexError) as error:
                raise self.source.unknown(f"{name[:200]!r} has {str(error)[:80]}") from None
            record = parse_tensor(value) if parts is None else None
            if isinstance(record, TensorRecord):
                parts = [LocalPart(record.shape, (0,) * len(record.shape), record)]
            elif parts is None and isinstance(record, str):
                self.skipped[name] = record
            for part in parts or ():
                self._put(name, part, pickled)

    def _put(self, name: str, part: LocalPart, pickled: PickledFile) -> None:
        if self.shapes.setdefault(name, part.shape) != part.shape:
            raise self.source.error(f"the ranks disagree about the shape of {name[:200]!r}. Copy all of it.")
        extent, _, _ = locate_tensor(pickled.file, name, part.record, pickled.locate)
        tensor = Tensor(name, part.record.shape, part.record.dtype, (pickled.file.name, part.record))
        if part.record.numel or not part.shape:
            piece = StoredPiece(tensor, extent)
            self.parts.setdefault(name, {}).setdefault(part.offsets, []).append(piece)
        else:
            self.parts.setdefault(name, {})

    def copies(self) -> dict[str, list[StoredPiece]]:
        """Parts that several ranks hold."""
        held = {name: next(iter(parts.values()), []) for name, parts in self.parts.items()}
        return {name: pieces for name, pieces in held.items() if len(pieces) > 1}

    def joined(self) -> Pieces:
        """Every tensor as a whole; CorruptCheckpoint if its parts do not cover it."""
        pieces: Pieces = {}
        for name, parts in self.parts.items():
            dtypes = {piece.tensor.dtype for held in parts.values() for piece in held}
            if len(dtypes) != 1:
                raise self.source.error(f"{name[:200]!r} is empty, or of several dtypes. Copy all of it.")
            dtype, shape = dtypes.pop(), self.shapes[name]
            tiles = [Tile(at, held[0].tensor.shape, held[0].extent) for at, held in parts.items()]
            storage = tuple(held[0].tensor.storage for held in parts.values())
            extent = join_tiles(name, shape, ITEM_SIZES[dtype], tiles)
            pieces[name] = StoredPiece(Tensor(name, shape, dtype, storage), extent)
        if not pieces:
            raise CheckpointError(f"{self.source.where} ({_LAYOUT}) contains no tensors.")
        return pieces


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of a state dict, inside its wrappers."""
    entries: Mapping[str, Any] = dict(children(value)) if is_mapping(value) else {}
    key = next((key for key in WRAPPERS if is_mapping(entries.get(key))), None)
    yield from _entries(entries[key]) if key is not None else entries.items()
