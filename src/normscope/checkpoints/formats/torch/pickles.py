"""PyTorch's own files: the zip archives of torch.save since 1.6, and the pickles before.

A zip holds `NAME/data.pkl` and one stored member for each storage, which is read straight
from the archive. A legacy file is five pickles one after the other (magic number, version,
system, value, storage keys), then each storage as a count of elements and its bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from normscope.checkpoints.base import Checkpoint, File, Folder, Tensor
from normscope.checkpoints.formats.extents import Extent, Extras, Span, StridedSpan, TableCheckpoint, Within
from normscope.checkpoints.formats.safetensors import read_weight_map
from normscope.checkpoints.formats.torch.pickle_machine import unpickle
from normscope.checkpoints.formats.torch.pickle_values import Pickle
from normscope.checkpoints.formats.torch.records import (
    ITEM_SIZES,
    Raw,
    Storage,
    persistent_keys,
    read_storage,
)
from normscope.checkpoints.formats.torch.state_dicts import ModelState, find_model
from normscope.checkpoints.storage import zips
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat

MAGIC = 0x1950A86A20F9469CFC6C
_PICKLE_LIMIT, _SHORT = 300_000_000, 1024
_WINDOWS = (1 << 16, 1 << 18, 1 << 20, 1 << 24, _PICKLE_LIMIT)

Locate = Callable[[Storage], tuple[Extent, int]]
"""Where a storage's bytes lie, and how many there are."""


def is_torch_zip(file: File) -> bool:
    """Whether the file is an archive with a data.pkl inside."""
    return zips.is_zip(file) and any(_is_pickle_member(name) for name in zips.read_directory(file))


def is_pickle(file: File) -> bool:
    """Whether the file begins like a pickle of protocol 2 or later."""
    head = file.peek(0, min(2, file.size))
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def open_torch_zip(file: File) -> Checkpoint:
    """The model in a file that torch.save wrote."""
    return _open_models([_read_zip(file)])


def open_legacy(file: File) -> Checkpoint:
    """The model in a file that torch.save wrote before 1.6, or with the old serialisation."""
    return _open_models([_read_legacy(file)])


def open_sharded_bin(folder: Folder, index_name: str) -> Checkpoint:
    """The model that `pytorch_model.bin.index.json` and its shards make up."""
    index = folder.file(index_name)
    shards = sorted(set(read_weight_map(index).values()))
    if missing := sorted(set(shards) - set(folder.names())):
        raise CorruptCheckpoint(f"{index.name} names the shard {missing[0]!r}, which is not there.")
    return open_bin_shards(folder, shards)


def open_bin_shards(folder: Folder, shards: list[str]) -> Checkpoint:
    """The model in several files, each with some of its tensors."""
    return _open_models([_read_any(folder.file(shard)) for shard in shards])


def read_single(file: File) -> tuple[Tensor, Extent]:
    """The one tensor that an archive holds."""
    checkpoint_file, state, locate = _read_any(file)
    if len(state.tensors) != 1:
        raise CorruptCheckpoint(f"{file.name} should hold one tensor, but holds {len(state.tensors)}.")
    ((name, raw),) = state.tensors.items()
    extent, _, _ = _place(checkpoint_file, name, raw, locate)
    return Tensor(name, raw.shape, raw.dtype, name), extent


def read_single_value(file: File) -> Any:
    """What an archive holds, if it is neither a tensor nor anything with parts; else None."""
    if not zips.is_zip(file):
        return None
    members = zips.read_directory(file)
    name = next((name for name in members if _is_pickle_member(name)), None)
    value = _unpickle(file, _read_pickle(file, members[name])).value if name else None
    return value if isinstance(value, str | int | float) else None


_Part = tuple[File, ModelState, Locate]


def _read_any(file: File) -> _Part:
    return _read_zip(file) if zips.is_zip(file) else _read_legacy(file)


def _read_zip(file: File) -> _Part:
    members = zips.read_directory(file)
    pickle_name = next((name for name in members if _is_pickle_member(name)), None)
    if pickle_name is None:
        raise UnknownFormat(f"{file.name} is an archive without a data.pkl, so torch.save did not write it.")
    root = pickle_name[: -len("data.pkl")]
    _check_byte_order(file, members.get(f"{root}byteorder"))
    state = _described(file, _read_pickle(file, members[pickle_name]))

    def locate(storage: Storage) -> tuple[Extent, int]:
        name = f"{root}data/{storage.key}"
        if name not in members:
            raise CorruptCheckpoint(f"{file.name} has no member {name[:200]!r}, which a tensor needs.")
        return _stored(file, members[name], name), members[name].size

    return file, state, locate


def _described(file: File, data: memoryview) -> ModelState:
    """The model that a pickle describes.

    A distributed checkpoint has an archive for each tensor, and many are alike: short pickles are remembered.
    """
    if len(data) <= _SHORT:
        with suppress(CheckpointError):  # raised again below, with the name of the file
            return _remembered(bytes(data))
    return find_model(_unpickle(file, data), file.name)


@lru_cache(maxsize=1024)
def _remembered(data: bytes) -> ModelState:
    return find_model(unpickle(memoryview(data)), "")


def _is_pickle_member(name: str) -> bool:
    return name == "data.pkl" or (name.endswith("/data.pkl") and name.count("/") == 1)


def _read_pickle(file: File, member: zips.Member) -> memoryview:
    if member.size > _PICKLE_LIMIT:
        raise CorruptCheckpoint(f"{file.name} has a pickle of {member.size:,} bytes, more than any real one.")
    return memoryview(_stored(file, member, "data.pkl").read(0, member.size))


def _stored(file: File, member: zips.Member, name: str) -> zips.MemberExtent:
    if member.method != zips.STORED or member.packed != member.size:
        raise CheckpointError(
            f"{file.name} holds {name[:200]!r} compressed, so it cannot be read in parts. "
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


def _read_legacy(file: File) -> _Part:
    """The pickles at the front, out of as much of the file as they turn out to need."""
    for window in _WINDOWS:
        try:
            return _read_legacy_head(file, memoryview(file.read(0, min(window, file.size))))
        except CorruptCheckpoint:
            if window >= min(file.size, _WINDOWS[-1]):
                raise
    raise AssertionError("unreachable: the last window is returned from or raises")


def _read_legacy_head(file: File, head: memoryview) -> _Part:
    first = _unpickle(file, head)
    if first.value != MAGIC:
        return file, find_model(first, file.name), _nowhere(file)
    version = _unpickle(file, head, first.end)
    system = _unpickle(file, head, version.end)
    if isinstance(system.value, dict) and system.value.get("little_endian") is False:
        raise CheckpointError(f"{file.name} is big-endian; save it again on a little-endian machine.")
    pickle = _unpickle(file, head, system.end)
    keys = _unpickle(file, head, pickle.end)
    places = _legacy_places(file, keys, _storage_widths(file, pickle.value))

    def locate(storage: Storage) -> tuple[Extent, int]:
        if storage.key not in places:
            raise CorruptCheckpoint(f"{file.name} has no storage {storage.key[:80]!r}, which a tensor needs.")
        start, size = places[storage.key]
        return Span(file, start), size

    return file, find_model(pickle, file.name), locate


def _nowhere(file: File) -> Locate:
    def locate(storage: Storage) -> tuple[Extent, int]:
        raise CorruptCheckpoint(f"{file.name} refers to storages, but holds none.")

    return locate


def _storage_widths(file: File, value: Any) -> dict[str, int]:
    """Bytes an element of each storage; legacy files count elements, not bytes."""
    try:
        storages = [read_storage(key, whole=True) for key in persistent_keys(value)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{file.name}: {error}. Copy or save it again.") from None
    return {storage.key: ITEM_SIZES[storage.dtype] for storage in storages}


def _legacy_places(file: File, keys: Pickle, widths: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Where each storage's bytes begin, and how many there are."""
    places: dict[str, tuple[int, int]] = {}
    position = keys.end
    if not isinstance(keys.value, list):
        raise CorruptCheckpoint(f"{file.name} lacks the list of its storages. Copy or save it again.")
    for key in keys.value:
        if not isinstance(key, str) or key not in widths:
            raise CorruptCheckpoint(f"{file.name} lists the storage {str(key)[:80]!r}, which nothing uses.")
        size = int.from_bytes(file.read(position, position + 8), "little") * widths[key]
        position += 8
        if position + size > file.size:
            raise CorruptCheckpoint(f"{file.name} is truncated: the storage {key[:80]!r} is cut short.")
        places[key] = (position, size)
        position += size
    return places


def _open_models(parts: Sequence[_Part]) -> Checkpoint:
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    skipped: dict[str, str] = {}
    views: defaultdict[tuple[str, str], set[tuple[int, int, Raw]]] = defaultdict(set)
    for file, state, locate in parts:
        skipped.update(state.skipped)
        for name, raw in state.tensors.items():
            if raw.numel > 0 and 0 in [s for n, s in zip(raw.shape, raw.strides, strict=True) if n > 1]:
                skipped[name] = "an expanded view: it shows the same elements more than once"
                continue
            extents[name], low, high = _place(file, name, raw, locate)
            tensors[name] = Tensor(name, raw.shape, raw.dtype, (file.name, raw))
            views[file.name, raw.storage.key].add((low, high, raw))
    step = _stored_step(parts)
    extras = Extras(skipped, step, _overlap_notes(views))
    return TableCheckpoint("pytorch", [part[0] for part in parts], tensors, extents, extras)


def _place(file: File, name: str, raw: Raw, locate: Locate) -> tuple[Extent, int, int]:
    """The tensor's extent, and the bytes of its storage that it spans."""
    base, size = locate(raw.storage)
    width = ITEM_SIZES[raw.dtype]
    length = sum((n - 1) * s for n, s in zip(raw.shape, raw.strides, strict=True)) + 1 if raw.numel else 0
    low = raw.storage.start + raw.offset * width
    high = low + length * width
    if high > size or raw.offset * width + length * width > raw.storage.nbytes:
        raise CorruptCheckpoint(
            f"{file.name} puts the tensor {name[:200]!r} at bytes {low:,} to {high:,} of {size:,}. "
            "Copy or save it again."
        )
    inside = Within(base, low)
    if raw.contiguous:
        return inside, low, high
    return StridedSpan(inside, raw.shape, raw.strides, width), low, high


def _stored_step(parts: Sequence[_Part]) -> int | None:
    for file, state, locate in parts:
        if isinstance(state.step, Raw):
            extent, low, high = _place(file, "step", state.step, locate)
            value = int.from_bytes(extent.read(0, high - low), "little", signed=True)
            return value if value >= 0 else None
        if state.step is not None:
            return state.step
    return None


def _overlap_notes(views: Mapping[tuple[str, str], set[tuple[int, int, Raw]]]) -> tuple[str, ...]:
    """A word on storages whose tensors overlap without being the same."""
    count = 0
    for spans in views.values():
        end = -1
        for low, high, _ in sorted(spans, key=lambda span: span[:2]) if len(spans) > 1 else ():
            count += low < end and high > low
            end = max(end, high)
    if not count:
        return ()
    return (f"{count} tensors share part of their storage with another; each is counted in full.",)
