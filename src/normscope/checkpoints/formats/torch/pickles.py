"""Files written by torch.save: zip archives since PyTorch 1.6, pickles before.

An archive contains `NAME/data.pkl` and one uncompressed member per storage, which is read directly
from the archive. A legacy file consists of five pickles (magic number, version, system, value,
storage keys), followed by each storage: its number of elements, then its bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, File, Folder, Tensor, quoted
from normscope.checkpoints.extents import ByteRange, Extent, Extras, StridedView, TableCheckpoint, read_step
from normscope.checkpoints.formats.safetensors import read_weight_map
from normscope.checkpoints.formats.torch.pickle_machine import unpickle
from normscope.checkpoints.formats.torch.pickle_values import Pickle, shown
from normscope.checkpoints.formats.torch.records import Storage, TensorRecord, persistent_keys, read_storage
from normscope.checkpoints.formats.torch.state_dicts import ModelState, find_model
from normscope.checkpoints.storage import zips
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat
from normscope.words import some

MAGIC = 0x1950A86A20F9469CFC6C
_PICKLE_LIMIT, _SHORT = 300_000_000, 1024
_WINDOWS = (1 << 16, 1 << 18, 1 << 20, 1 << 24, _PICKLE_LIMIT)

Locate = Callable[[Storage], tuple[Extent, int]]
"""Finds the bytes of a storage; returns them and their number."""


def is_torch_zip(file: File) -> bool:
    """Whether the file is an archive that contains a data.pkl."""
    return zips.is_zip(file) and any(_is_pickle_member(name) for name in zips.read_directory(file))


def is_pickle(file: File) -> bool:
    """Whether the file begins like a pickle of protocol 2 or later."""
    head = file.peek(0, min(2, file.size))
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def open_torch_zip(file: File) -> Checkpoint:
    """Open the model in a zip archive of torch.save."""
    return _open_models([_read_zip(file)])


def open_legacy(file: File) -> Checkpoint:
    """Open the model in a file of torch.save before 1.6, or with the old serialisation."""
    return _open_models([_read_legacy(file)])


def open_sharded_bin(folder: Folder, index_name: str) -> Checkpoint:
    """Open a model that consists of `pytorch_model.bin.index.json` and its shards."""
    index = folder.file(index_name)
    shards = sorted(set(read_weight_map(index).values()))
    if missing := sorted(set(shards) - set(folder.names())):
        listed = some(quoted(missing))
        raise CorruptCheckpoint(f"{index.name} names shards that are missing: {listed}. Copy them too.")
    return open_bin_shards(folder, shards)


def open_bin_shards(folder: Folder, shards: list[str]) -> Checkpoint:
    """Open a model in several files, each with some of its tensors."""
    return _open_models([_read_any(folder.file(shard)) for shard in shards])


def read_single(file: File) -> tuple[Tensor, Extent]:
    """The only tensor in an archive."""
    checkpoint_file, state, locate = _read_any(file)
    if len(state.tensors) != 1:
        raise CorruptCheckpoint(f"{file.name} should contain one tensor, but has {len(state.tensors)}.")
    ((name, record),) = state.tensors.items()
    extent, _, _ = _locate_tensor(checkpoint_file, name, record, locate)
    return Tensor(name, record.shape, record.dtype, name), extent


def read_single_value(file: File) -> Any:
    """The value in an archive, if it is a string or a number; else None."""
    if not zips.is_zip(file):
        return None
    members = zips.read_directory(file)
    name = next((name for name in members if _is_pickle_member(name)), None)
    value = _unpickle(file, _read_pickle(file, members[name])).value if name else None
    return value if isinstance(value, str | int | float) else None


_PickledModel = tuple[File, ModelState, Locate]


def _read_any(file: File) -> _PickledModel:
    return _read_zip(file) if zips.is_zip(file) else _read_legacy(file)


def _read_zip(file: File) -> _PickledModel:
    members = zips.read_directory(file)
    pickle_name = next((name for name in members if _is_pickle_member(name)), None)
    if pickle_name is None:
        raise UnknownFormat(
            f"{file.name} is an archive without a data.pkl, so it was not written by torch.save."
        )
    root = pickle_name[: -len("data.pkl")]
    _check_byte_order(file, members.get(f"{root}byteorder"))
    state = _describe(file, _read_pickle(file, members[pickle_name]))

    def locate(storage: Storage) -> tuple[Extent, int]:
        name = f"{root}data/{storage.key}"
        if name not in members:
            raise CorruptCheckpoint(f"{file.name} lacks the member {name[:200]!r}, which a tensor needs.")
        return _stored(file, members[name], name), members[name].size

    return file, state, locate


def _describe(file: File, data: memoryview) -> ModelState:
    """The model that a pickle describes.

    A distributed checkpoint has one archive per tensor, with many equal pickles: short ones are cached.
    """
    if len(data) <= _SHORT:
        with suppress(CheckpointError):  # raised again below, with the name of the file
            return _describe_cached(bytes(data))
    return find_model(_unpickle(file, data), file.name)


@lru_cache(maxsize=1024)
def _describe_cached(data: bytes) -> ModelState:
    return find_model(unpickle(memoryview(data)), "")


def _is_pickle_member(name: str) -> bool:
    return name == "data.pkl" or (name.endswith("/data.pkl") and name.count("/") == 1)


def _read_pickle(file: File, member: zips.Member) -> memoryview:
    if member.size > _PICKLE_LIMIT:
        raise CorruptCheckpoint(
            f"{file.name} has too large a pickle: {member.size:,} bytes (limit {_PICKLE_LIMIT:,})."
        )
    return memoryview(_stored(file, member, "data.pkl").read(0, member.size))


def _stored(file: File, member: zips.Member, name: str) -> zips.MemberExtent:
    if member.method != zips.STORED or member.packed != member.size:
        raise CheckpointError(
            f"{file.name} contains {name[:200]!r} compressed, so it cannot be read in parts. "
            "Load it with torch and save it again."
        )
    return zips.MemberExtent(file, member)


def _check_byte_order(file: File, member: zips.Member | None) -> None:
    if member is None or member.size > 16:
        return
    if bytes(_stored(file, member, "byteorder").read(0, member.size)) != b"little":
        raise CheckpointError(f"{file.name} is big-endian; save it again on a little-endian machine.")


def _unpickle(file: File, data: memoryview, position: int = 0) -> Pickle:
    try:
        return unpickle(data, position)
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{file.name}: {error}. Copy or save it again.") from None


def _read_legacy(file: File) -> _PickledModel:
    """Read the pickles at the beginning, with a growing part of the file until they are complete."""
    for window in _WINDOWS:
        try:
            return _read_legacy_head(file, memoryview(file.read(0, min(window, file.size))))
        except CorruptCheckpoint:
            if window >= min(file.size, _WINDOWS[-1]):
                raise
    raise AssertionError("unreachable: the last window is returned from or raises")


def _read_legacy_head(file: File, head: memoryview) -> _PickledModel:
    first = _unpickle(file, head)
    if first.value != MAGIC:
        return file, find_model(first, file.name), _no_storages(file)
    version = _unpickle(file, head, first.end)
    system = _unpickle(file, head, version.end)
    if isinstance(system.value, dict) and system.value.get("little_endian") is False:
        raise CheckpointError(f"{file.name} is big-endian; save it again on a little-endian machine.")
    pickle = _unpickle(file, head, system.end)
    keys = _unpickle(file, head, pickle.end)
    offsets = _legacy_offsets(file, keys, _storage_widths(file, pickle.value))

    def locate(storage: Storage) -> tuple[Extent, int]:
        if storage.key not in offsets:
            raise CorruptCheckpoint(
                f"{file.name} lacks the storage {storage.key[:80]!r}, which a tensor needs."
            )
        start, size = offsets[storage.key]
        return ByteRange(file, start), size

    return file, find_model(pickle, file.name), locate


def _no_storages(file: File) -> Locate:
    def locate(storage: Storage) -> tuple[Extent, int]:
        raise CorruptCheckpoint(f"{file.name} refers to storages, but contains none.")

    return locate


def _storage_widths(file: File, value: Any) -> dict[str, int]:
    """Bytes per element of each storage: legacy files count elements, not bytes."""
    try:
        storages = [read_storage(key, whole=True) for key in persistent_keys(value)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{file.name}: {error}. Copy or save it again.") from None
    return {storage.key: ITEM_SIZES[storage.dtype] for storage in storages}


def _legacy_offsets(file: File, keys: Pickle, widths: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Offset and size in bytes of each storage."""
    offsets: dict[str, tuple[int, int]] = {}
    position = keys.end
    if not isinstance(keys.value, list):
        raise CorruptCheckpoint(f"{file.name} lacks the list of its storages. Copy or save it again.")
    for key in keys.value:
        if not isinstance(key, str) or key not in widths:
            raise CorruptCheckpoint(f"{file.name} lists the storage {shown(key)!r}, which no tensor uses.")
        size = int.from_bytes(file.read(position, position + 8), "little") * widths[key]
        position += 8
        if position + size > file.size:
            raise CorruptCheckpoint(
                f"{file.name} is truncated: it ends inside the storage {key[:80]!r}. Copy or save it again."
            )
        offsets[key] = (position, size)
        position += size
    return offsets


def _open_models(parts: Sequence[_PickledModel]) -> Checkpoint:
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    skipped: dict[str, str] = {}
    views: defaultdict[tuple[str, str], set[tuple[int, int, TensorRecord]]] = defaultdict(set)
    for file, state, locate in parts:
        skipped.update(state.skipped)
        for name, record in state.tensors.items():
            if record.repeats:
                skipped[name] = "an expanded view: it repeats elements"
                continue
            extents[name], low, high = _locate_tensor(file, name, record, locate)
            tensors[name] = Tensor(name, record.shape, record.dtype, (file.name, record))
            views[file.name, record.storage.key].add((low, high, record))
    step = _stored_step(parts)
    buffers = frozenset(name for _, state, _ in parts for name in state.buffers)
    networks = tuple(dict.fromkeys(key for _, state, _ in parts for key in state.networks))
    parameters = frozenset(name for _, state, _ in parts for name in state.parameters)
    extras = Extras(skipped, step, _overlap_notes(views), buffers, networks, parameters)
    return TableCheckpoint("pytorch", [part[0] for part in parts], tensors, extents, extras)


def _locate_tensor(file: File, name: str, record: TensorRecord, locate: Locate) -> tuple[Extent, int, int]:
    """The extent of a tensor, and where its bytes begin and end in the storage."""
    base, size = locate(record.storage)
    width = ITEM_SIZES[record.dtype]
    low = record.storage.start + record.offset * width
    high = low + record.reach * width
    if high > size or high - record.storage.start > record.storage.nbytes:
        raise CorruptCheckpoint(
            f"{file.name} puts the tensor {name[:200]!r} at bytes {low:,} to {high:,} of {size:,}. "
            "Copy or save it again."
        )
    inside = ByteRange(base, low)
    if record.contiguous:
        return inside, low, high
    return StridedView(inside, record.shape, record.strides, width), low, high


def _stored_step(parts: Sequence[_PickledModel]) -> int | None:
    for file, state, locate in parts:
        if isinstance(state.step, TensorRecord):
            extent, low, high = _locate_tensor(file, "step", state.step, locate)
            return read_step(extent, high - low)
        if state.step is not None:
            return state.step
    return None


def _overlap_notes(views: Mapping[tuple[str, str], set[tuple[int, int, TensorRecord]]]) -> tuple[str, ...]:
    """A note on tensors that share part of their bytes without being equal."""
    count = 0
    for spans in views.values():
        end = -1
        for low, high, _ in sorted(spans, key=lambda span: span[:2]) if len(spans) > 1 else ():
            count += low < end and high > low
            end = max(end, high)
    if not count:
        return ()
    return (f"{count} tensors share part of their storage with another; each is counted in full.",)
