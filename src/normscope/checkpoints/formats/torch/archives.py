"""Files of torch.save: zip archives since PyTorch 1.6, pickles before; their values and storages.

An archive contains `NAME/data.pkl` and one uncompressed member per storage, which is read directly
from the archive. A legacy file consists of five pickles (magic number, version, system, value,
storage keys), followed by each storage: its number of elements, then its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, File
from normscope.checkpoints.extents import ByteRange, Extent
from normscope.checkpoints.formats.torch.pickle_machine import unpickle
from normscope.checkpoints.formats.torch.pickle_values import LONG_TEXT, Pickle, PickleBytes, shown
from normscope.checkpoints.formats.torch.records import Storage, TensorRecord, persistent_keys, read_storage
from normscope.checkpoints.formats.torch.windowed_bytes import SHORT_TEXT, WindowedBytes
from normscope.checkpoints.storage import zips
from normscope.checkpoints.strided_view import StridedView
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat

MAGIC = 0x1950A86A20F9469CFC6C
_PICKLE_LIMIT = 300_000_000
_WINDOWS = (1 << 16, 1 << 18, 1 << 20, 1 << 24, _PICKLE_LIMIT)

Locate = Callable[[Storage], tuple[Extent, int]]
"""Finds the bytes of a storage; returns them and their number."""


@dataclass(frozen=True)
class PickledFile:
    """A file of torch.save: the value in it as data, and where its storages are."""

    file: File
    pickle: Pickle
    locate: Locate


def is_torch_zip(file: File) -> bool:
    """Whether the file is an archive that contains a data.pkl."""
    return zips.is_zip(file) and any(_is_pickle_member(name) for name in zips.read_directory(file))


def is_pickle(file: File) -> bool:
    """Whether the file begins like a pickle of protocol 2 or later."""
    head = file.peek(0, min(2, file.size))
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def read_pickled(file: File) -> PickledFile:
    """Read the value in a file of torch.save; nothing in it is run."""
    if not zips.is_zip(file):
        return read_legacy(file)
    data, locate = read_zip(file)
    return PickledFile(file, unpickle_in(file, data), locate)


def read_zip(file: File) -> tuple[memoryview, Locate]:
    """The pickle in an archive, and where its storages are."""
    members = zips.read_directory(file)
    pickle_name = next((name for name in members if _is_pickle_member(name)), None)
    if pickle_name is None:
        raise UnknownFormat(
            f"{file.name} is an archive without a data.pkl, so it was not written by torch.save."
        )
    root = pickle_name[: -len("data.pkl")]
    _check_byte_order(file, members.get(f"{root}byteorder"))

    def locate(storage: Storage) -> tuple[Extent, int]:
        name = f"{root}data/{storage.key}"
        if name not in members:
            raise CorruptCheckpoint(f"{file.name} lacks the member {name[:200]!r}, which a tensor needs.")
        return _stored(file, members[name], name), members[name].size

    return _read_pickle(file, members[pickle_name]), locate


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


def unpickle_in(file: File, data: PickleBytes, position: int = 0, long_text: int = LONG_TEXT) -> Pickle:
    """Read a pickle; an error names the file."""
    try:
        return unpickle(data, position, long_text)
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{file.name}: {error}. Copy or save it again.") from None


def read_legacy(file: File) -> PickledFile:
    """Read the pickles at the beginning, with a growing part of the file until they are complete.

    A pickle that torch.save did not write is read in windows, because it may consist of large arrays.
    """
    if not _is_legacy(file):
        pickle = unpickle_in(file, WindowedBytes(file), long_text=SHORT_TEXT)
        return PickledFile(file, pickle, _no_storages(file))
    for window in _WINDOWS:
        try:
            return _read_legacy_head(file, memoryview(file.read(0, min(window, file.size))))
        except CorruptCheckpoint:
            if window >= min(file.size, _WINDOWS[-1]):
                raise
    raise AssertionError("unreachable: the last window is returned from or raises")


def _is_legacy(file: File) -> bool:
    try:
        return bool(unpickle(memoryview(file.peek(0, min(_WINDOWS[0], file.size)))).value == MAGIC)
    except CorruptCheckpoint:
        return False  # the magic number is a pickle of a few bytes


def _read_legacy_head(file: File, head: memoryview) -> PickledFile:
    first = unpickle_in(file, head)
    version = unpickle_in(file, head, first.end)
    system = unpickle_in(file, head, version.end)
    if isinstance(system.value, dict) and system.value.get("little_endian") is False:
        raise CheckpointError(f"{file.name} is big-endian; save it again on a little-endian machine.")
    pickle = unpickle_in(file, head, system.end)
    keys = unpickle_in(file, head, pickle.end)
    offsets = _legacy_offsets(file, keys, _storage_widths(file, pickle.value))

    def locate(storage: Storage) -> tuple[Extent, int]:
        if storage.key not in offsets:
            raise CorruptCheckpoint(
                f"{file.name} lacks the storage {storage.key[:80]!r}, which a tensor needs."
            )
        start, size = offsets[storage.key]
        return ByteRange(file, start), size

    return PickledFile(file, pickle, locate)


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


def locate_tensor(file: File, name: str, record: TensorRecord, locate: Locate) -> tuple[Extent, int, int]:
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
