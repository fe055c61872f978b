"""DeepSpeed's ZeRO: fp32 weights in flat partitions, mapped to names and shapes by `param_shapes`.

Stages 1 and 2 put the parameters of a group in a row and divide the whole between the ranks; its end
is padded. Stage 3 divides each parameter by itself, each rank's part padded to the same length, and puts a
rank's parts one after the other. Source: deepspeed/utils/zero_to_fp32.py, deepspeed/checkpoint/constants.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, File, Tensor
from normscope.checkpoints.extents import ByteRange
from normscope.checkpoints.formats.ranks.rank_state import Pieces, RankSource, RankState, StoredPiece
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.checkpoints.formats.torch.archives import PickledFile, locate_tensor
from normscope.checkpoints.formats.torch.nested_values import children, is_mapping
from normscope.checkpoints.formats.torch.records import TensorRecord, parse_tensor, read_size
from normscope.checkpoints.limits import limits
from normscope.errors import CheckpointError

Shape = tuple[int, ...]
_STEM = "the partitions of the optimizer"


@dataclass(frozen=True)
class ZeroPartitions:
    """The fp32 weights of the optimizer by name, and the files they are in."""

    pieces: Pieces
    files: tuple[File, ...]


@dataclass(frozen=True)
class _Flat:
    """Flat pieces one after the other."""

    pieces: tuple[StoredPiece, ...]

    @property
    def numel(self) -> int:
        return sum(piece.tensor.numel for piece in self.pieces)

    def cut(self, start: int, count: int, at: int) -> Iterator[Tile]:
        """The elements start … start+count−1 as tiles of a flat tensor, from its element `at` on."""
        begin = 0
        for piece in self.pieces:
            low, high = max(start, begin), min(start + count, begin + piece.tensor.numel)
            if low < high:
                width = ITEM_SIZES[piece.tensor.dtype]
                inside = ByteRange(piece.extent, (low - begin) * width)
                yield Tile((at + low - start,), (high - low,), inside)
            begin += piece.tensor.numel


def read_partitions(
    model: PickledFile, optimizers: Sequence[PickledFile], source: RankSource
) -> ZeroPartitions | str | None:
    """The fp32 weights of stages 1 and 2; None if there are no partitions, or why they are not used."""
    states = [entries_at(each.pickle.value, "optimizer_state_dict") for each in optimizers]
    if not states or "zero_stage" not in states[0] or "single_partition_of_fp32_groups" not in states[0]:
        return None
    counts = _integers(states[0].get("partition_count"))
    if not counts or max(counts) != len(optimizers):
        return f"of the optimizer's {max(counts, default=0)} partitions, {len(optimizers)} are there"
    if min(counts) != max(counts):
        return "the parameter groups are divided between different numbers of ranks"
    groups = [
        _flat_groups(each, state["single_partition_of_fp32_groups"])
        for each, state in zip(optimizers, states, strict=True)
    ]
    shapes = shape_groups(model)
    if not shapes or any(len(each) != len(shapes) for each in groups):
        return f"{_STEM} do not fit param_shapes"
    paddings = _paddings(states[0].get("param_alignment_paddings"), shapes)
    pieces: Pieces = {}
    for i, group in enumerate(shapes):
        flat = _Flat(tuple(piece for rank in groups for piece in rank[i].pieces))
        pieces |= _in_sequence(group, flat, paddings[i], 2 * len(optimizers), source)
    _add_shared(model, pieces)
    return ZeroPartitions(pieces, tuple(each.file for each in optimizers))


def _in_sequence(
    shapes: Mapping[str, Shape],
    flat: _Flat,
    paddings: Sequence[int],
    align: int,
    source: RankSource,
) -> Pieces:
    pieces: Pieces = {}
    at = 0
    for (name, shape), padding in zip(shapes.items(), paddings, strict=True):
        count = math.prod(shape)
        if at + count > flat.numel:
            raise source.error(f"{_STEM} end inside {name[:200]!r}. Copy all of it.")
        pieces[name] = _piece(name, shape, list(flat.cut(at, count, 0)), flat)
        at += count + padding
    if -(-at // align) != -(-flat.numel // align):
        raise source.error(f"{_STEM} have {flat.numel:,} elements, but param_shapes {at:,}. Copy all of it.")
    return pieces


def zero3_state(
    name: str, models: Sequence[PickledFile], optimizers: Sequence[PickledFile], source: RankSource
) -> RankState:
    """The fp32 weights of stage 3, of which every rank has a part of each, and the buffers."""
    states = [entries_at(each.pickle.value, "optimizer_state_dict") for each in optimizers]
    if any("fp32_flat_groups" not in state for state in states):
        raise source.unknown("its optimizer files have no fp32_flat_groups")
    counts = _integers(states[0].get("partition_count"))
    if counts and max(counts) != len(optimizers):
        raise source.error(f"{len(optimizers)} of {max(counts)} partitions are there. Copy all of it.")
    flats = [
        _Flat(tuple(p for group in _flat_groups(each, state["fp32_flat_groups"]) for p in group.pieces))
        for each, state in zip(optimizers, states, strict=True)
    ]
    found: Pieces = {}
    at = 0
    for shapes in shape_groups(models[0]):
        for key, shape in shapes.items():
            count = math.prod(shape)
            part = -(-count // len(flats))
            found[key] = _divided(key, shape, flats, at, source)
            at += part
    if {flat.numel for flat in flats} != {at}:
        raise source.error(
            f"{_STEM} have {flats[0].numel:,} elements each, but param_shapes {at:,}. Copy all of it."
        )
    found |= _frozen(models, source)
    _add_shared(models[0], found)
    pieces, buffers, skipped = _with_buffers(models[0], found)
    files = tuple(each.file for each in (*models, *optimizers))
    return RankState(name, models[0].file, pieces, skipped, None, buffers, {}, files)


def _divided(name: str, shape: Shape, flats: Sequence[_Flat], at: int, source: RankSource) -> StoredPiece:
    """A parameter of which each rank has a part, from `at` on; the padding at the end is left out."""
    count = math.prod(shape)
    part = -(-count // len(flats))
    tiles: list[Tile] = []
    for rank, flat in enumerate(flats):
        first = min(count, rank * part)
        tiles += flat.cut(at, min(part, count - first), first)
    if sum(tile.sizes[0] for tile in tiles) != count:
        raise source.error(f"{_STEM} end inside {name[:200]!r}. Copy all of it.")
    return _piece(name, shape, tiles, flats[0])


def _frozen(models: Sequence[PickledFile], source: RankSource) -> Pieces:
    """Parameters that are not trained, which the model files hold in parts of their own."""
    shapes = _shapes(entries_at(models[0].pickle.value).get("frozen_param_shapes"))
    held = [entries_at(each.pickle.value, "frozen_param_fragments") for each in models]
    found: Pieces = {}
    for name, shape in shapes.items():
        flats = [
            _Flat((_tensor(each, name, fragments[name]),))
            for each, fragments in zip(models, held, strict=True)
            if name in fragments
        ]
        if len(flats) != len(models):
            raise source.error(f"some ranks have no part of {name[:200]!r}. Copy all of it.")
        found[name] = _divided(name, shape, flats, 0, source)
    return found


def _with_buffers(model: PickledFile, found: Pieces) -> tuple[Pieces, frozenset[str], dict[str, str]]:
    """The parameters in the order of the module, its buffers, which are stored whole, and what is neither."""
    value = entries_at(model.pickle.value)
    names = value.get("buffer_names")
    buffers = {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    pieces: Pieces = {}
    skipped: dict[str, str] = {}
    for name, stored in entries_at(model.pickle.value, "module").items():
        if name in found:
            pieces[name] = found[name]
        elif name in buffers and isinstance(parse_tensor(stored), TensorRecord):
            pieces[name] = _tensor(model, name, stored)
        elif parse_tensor(stored) is not None:
            skipped[name] = "in the module, but not among the parameters or buffers that ZeRO lists"
    return {**pieces, **found}, frozenset(buffers), skipped


def _add_shared(model: PickledFile, pieces: Pieces) -> None:
    """Other names of parameters that are there already: the same bytes, so they count once."""
    shared = entries_at(model.pickle.value, "shared_params")
    for name, other in shared.items():
        if isinstance(other, str) and other in pieces and name not in pieces:
            pieces[name] = pieces[other].named(name)


def entries_at(value: Any, key: str | None = None) -> dict[str, Any]:
    """The entries of a dictionary, or of one inside it; {} if there is none."""
    entries = dict(children(value)) if is_mapping(value) else {}
    return entries if key is None else entries_at(entries.get(key))


def shape_groups(model: PickledFile) -> list[dict[str, Shape]]:
    """The shapes of each parameter group, in the order in which they are stored."""
    listed = entries_at(model.pickle.value).get("param_shapes")
    groups = listed if isinstance(listed, list | tuple) else [listed] if listed is not None else []
    return [_shapes(group) for group in groups]


def _shapes(value: Any) -> dict[str, Shape]:
    found = entries_at(value)
    if len(found) > limits().tensors:
        raise CheckpointError(f"param_shapes has too many entries: {len(found):,}")
    return {name: read_size(size) for name, size in found.items()}


def _flat_groups(pickled: PickledFile, value: Any) -> list[_Flat]:
    listed = value if isinstance(value, list | tuple) else [value]
    return [_Flat((_tensor(pickled, "partition", each),)) for each in listed]


def _tensor(pickled: PickledFile, name: str, value: Any) -> StoredPiece:
    record = parse_tensor(value)
    if not isinstance(record, TensorRecord):
        raise CheckpointError(f"{pickled.file.name} should hold a tensor for {name[:200]!r}; it does not.")
    extent, _, _ = locate_tensor(pickled.file, name, record, pickled.locate)
    return StoredPiece(Tensor(name, record.shape, record.dtype, (pickled.file.name, record)), extent)


def _piece(name: str, shape: Shape, tiles: list[Tile], flat: _Flat) -> StoredPiece:
    dtype = flat.pieces[0].tensor.dtype
    extent = join_tiles(name, (math.prod(shape),), ITEM_SIZES[dtype], tiles)
    return StoredPiece(Tensor(name, shape, dtype, ("partition", name)), extent)


def _paddings(value: Any, shapes: Sequence[Mapping[str, object]]) -> list[list[int]]:
    """The elements after each parameter that newer versions leave unused."""
    none = [[0] * len(group) for group in shapes]
    found = [_integers(each) for each in value] if isinstance(value, list) else none
    return found if [*map(len, found)] == [*map(len, none)] else none


def _integers(value: Any) -> list[int]:
    listed = value if isinstance(value, list | tuple) else [value]
    return [each for each in listed if type(each) is int and 0 <= each < 1 << 40]
