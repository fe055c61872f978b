"""TensorFlow's checkpoints (`NAME.index` and `NAME.data-00000-of-00001`), read without TensorFlow.

The index is a sorted table: the value of the empty key is a BundleHeaderProto, every other value is
a BundleEntryProto (dtype, shape, shard, offset, size). The entry of a partitioned variable lists its
slices, and each slice has an entry of its own under a key made of name and slice.
tensorflow/core/protobuf/tensor_bundle.proto, tensorflow/core/util/saved_tensor_slice_util.cc
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, File, Folder, Tensor
from normscope.checkpoints.extents import ByteRange, Extent, Extras, TableCheckpoint, read_step
from normscope.checkpoints.formats.model_entries import no_parameters
from normscope.checkpoints.formats.tensorflow.leveldb import is_sorted_table, read_sorted_table
from normscope.checkpoints.formats.tensorflow.object_graph import (
    COPY,
    GRAPH_KEY,
    LARGEST_GRAPH,
    NUMBERED,
    NUMBERS_NOTE,
    copies,
    full_names,
    is_model_of_optimizer,
    meaningful_names,
    stored_text,
    variables_of,
)
from normscope.checkpoints.formats.tensorflow.ordered_code import slice_key
from normscope.checkpoints.formats.tensorflow.protobuf import integer_field, message_field, read_message
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.checkpoints.limits import AXES, limits
from normscope.errors import CheckpointError, CorruptCheckpoint

INDEX_SUFFIX = ".index"
_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"

# tensorflow/core/framework/types.proto
_DTYPES: Mapping[int, str] = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64",
    10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
    24: "float8_e5m2", 25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 28: "float8_e5m2fnuz",
}  # fmt: skip
_STRING = 7
_ENTRY = 1 << 22
"""Bytes of the entry of one variable, which lists all its slices."""

_SLOT = re.compile(
    r"(_slot_[a-z]+|/(Adam|AdamW|Adafactor|Momentum|RMSProp|Adagrad|Ftrl|AdamWeightDecay\w*|LAMB\w*)(_[0-9]+)?"
    r"|/(adam|lamb|adagrad)_[mv]|/ExponentialMovingAverage|^beta[12]_power|(^|/)optimizer/.*|.*/\.OPTIMIZER_SLOT/.*"
    r"|^_?(optimizer|keras_api/metrics)/.*)$"
)
_STEP = re.compile(r"global_step$|^(?:.*/)?_?optimizer/_?iter(?:ation)?s?$")
_BOOKKEEPING = re.compile(r"^(save_counter|_CHECKPOINTABLE_OBJECT_GRAPH|learning_rate)(/|$)|/?global_step$")


@dataclass(frozen=True)
class _BundleEntry:
    """A BundleEntryProto."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    slices: tuple[tuple[tuple[int, int], ...], ...]
    checksum: int

    @property
    def is_integer(self) -> bool:
        """Whether the variable is a single integer."""
        return not self.shape and _DTYPES.get(self.dtype) in ("int64", "int32") and self.size <= 8


def is_bundle(file: File) -> bool:
    """Whether the file is the index of a bundle, judged by its name and its last bytes."""
    return file.name.endswith(INDEX_SUFFIX) and is_sorted_table(file)


def open_bundle(folder: Folder, index_name: str) -> Checkpoint:
    """Open the checkpoint whose index is the file of that name."""
    index = folder.file(index_name)
    try:
        return _BundleReader(folder, index, index_name.removesuffix(INDEX_SUFFIX)).open()
    except (ValueError, IndexError, KeyError) as error:
        raise CorruptCheckpoint(
            f"{index.name} is not a valid checkpoint index ({str(error)[:100]})."
        ) from None


def open_saved_model(folder: Folder) -> Checkpoint:
    """Open the variables of a SavedModel; its graph is not read."""
    return open_bundle(*variables_of(folder))


class _BundleReader:
    """Turns the entries of an index into a table of tensors."""

    def __init__(self, folder: Folder, index: File, prefix: str) -> None:
        self.folder, self.index, self.prefix = folder, index, prefix
        self.table = read_sorted_table(index)
        header = read_message(self.table.pop(b""))
        self.shards = integer_field(header, 1, 1)
        if integer_field(header, 2):
            raise CheckpointError(f"{index.name} was written on a big-endian machine; save it again.")
        self.files: dict[int, File] = {}
        self.parts = 0

    def open(self) -> Checkpoint:
        """Find the bytes of every variable that is a parameter."""
        tensors: dict[str, Tensor] = {}
        extents: dict[str, Extent] = {}
        skipped: dict[str, str] = {}
        step = None
        entries = self._entries()
        graph = self._full_names()
        names = meaningful_names(entries, graph)
        twice = copies({name: _mark(entry) for name, (_, entry) in entries.items()}) if graph else set()
        for path, (key, entry) in entries.items():
            name = names[path]
            if _STEP.search(path) and entry.is_integer:
                step = read_step(self._span(entry), entry.size)
            if reason := COPY if path in twice else _reason(path, entry):
                skipped[name] = reason
                continue
            dtype = _DTYPES[entry.dtype]
            tensors[name], extents[name] = (
                Tensor(name, entry.shape, dtype, key),
                self._extent(key, entry, dtype),
            )
        if not tensors:
            raise no_parameters(self.index.name, skipped)
        files = [self.index, *self.files.values()]
        notes = (NUMBERS_NOTE,) if any(map(NUMBERED.fullmatch, tensors)) else ()
        return TableCheckpoint("tensorflow", files, tensors, extents, Extras(skipped, step, notes))

    def _entries(self) -> dict[str, tuple[bytes, _BundleEntry]]:
        """Path → key and entry of each variable; slices are found through their variables."""
        found: dict[str, tuple[bytes, _BundleEntry]] = {}
        for key, value in self.table.items():
            if key[:1] == b"\0":
                continue
            path = key.decode("utf-8", "replace").removesuffix(_ATTRIBUTE)
            if path in found:
                raise ValueError(f"two variables are called {path[:80]!r}")
            found[path] = key, _read_entry(value)
        return found

    def _full_names(self) -> dict[str, str]:
        """What variables were called in TensorFlow, by their paths, if the checkpoint says so."""
        if GRAPH_KEY not in self.table:
            return {}
        entry = _read_entry(self.table[GRAPH_KEY])
        if entry.size > LARGEST_GRAPH:
            return {}
        found = full_names(stored_text(bytes(self._span(entry).read(0, entry.size))))
        return {key.removesuffix(_ATTRIBUTE): name for key, name in found.items()}

    def _extent(self, key: bytes, entry: _BundleEntry, dtype: str) -> Extent:
        width = ITEM_SIZES[dtype]
        if not entry.slices:
            return self._checked(key, entry, entry.shape, width)
        tiles = []
        self.parts += len(entry.slices)
        if self.parts > limits().parts:
            raise ValueError(f"too many slices of variables (limit {limits().parts:,})")
        for ranges in entry.slices:
            stored = _read_entry(self.table[slice_key(key, ranges)])
            full = zip(ranges, entry.shape, strict=True)
            sizes = tuple(size if length == -1 else length for (_, length), size in full)
            offsets = tuple(start for start, _ in ranges)
            if (stored.dtype, stored.shape) != (entry.dtype, sizes):
                raise ValueError(f"a slice of {key[:80]!r} has another dtype or shape than it should have")
            tiles.append(Tile(offsets, sizes, self._checked(key, stored, sizes, width)))
        return join_tiles(key.decode("utf-8", "replace"), entry.shape, width, tiles)

    def _checked(self, key: bytes, entry: _BundleEntry, shape: tuple[int, ...], width: int) -> ByteRange:
        if entry.size != math.prod(shape) * width:
            raise ValueError(f"the size of {key[:80]!r} does not match its shape {list(shape)}")
        return self._span(entry)

    def _span(self, entry: _BundleEntry) -> ByteRange:
        file = self._file(entry.shard)
        file.check_range(entry.offset, entry.offset + entry.size)
        return ByteRange(file, entry.offset)

    def _file(self, shard: int) -> File:
        if shard not in self.files:
            name = f"{self.prefix}.data-{shard:05d}-of-{self.shards:05d}"
            if not 0 <= shard < self.shards < 100_000 or name not in self.folder.names():
                raise CorruptCheckpoint(
                    f"The data file {name!r} of {self.index.name} is missing. Copy it too."
                )
            self.files[shard] = self.folder.file(name)
        return self.files[shard]


def _reason(name: str, entry: _BundleEntry) -> str | None:
    if _SLOT.search(name) and not is_model_of_optimizer(name):
        return "optimizer slot variable"
    if _BOOKKEEPING.search(name):
        return "bookkeeping"
    if entry.dtype == _STRING:
        return "text"
    return None if entry.dtype in _DTYPES else f"TensorFlow's dtype number {entry.dtype}"


def _mark(entry: _BundleEntry) -> tuple[object, ...]:
    """Two variables of equal marks have the same values."""
    return entry.dtype, entry.shape, entry.size, entry.checksum


def _read_entry(data: bytes) -> _BundleEntry:
    if len(data) > _ENTRY:
        raise ValueError(f"an entry of {len(data):,} bytes (limit {_ENTRY:,})")
    fields = read_message(data)
    shape = [
        integer_field(read_message(dim), 1)
        for part in message_field(fields, 2)
        for dim in message_field(read_message(part), 2)
    ]
    if any(not 0 <= size < 1 << 62 for size in shape) or len(shape) > AXES:
        raise ValueError("a shape is not a list of non-negative integers")
    slices = tuple(
        tuple(_read_range(read_message(extent)) for extent in message_field(read_message(part), 1))
        for part in message_field(fields, 7)
    )
    dtype, shard, offset, size = (integer_field(fields, field) for field in (1, 3, 4, 5))
    if min(shard, offset, size) < 0:
        raise ValueError("a negative offset or size")
    checksum = b"".join(value for value in fields.get(6, []) if isinstance(value, bytes))
    return _BundleEntry(dtype, tuple(shape), shard, offset, size, slices, int.from_bytes(checksum, "little"))


def _read_range(fields: dict[int, list[int | bytes]]) -> tuple[int, int]:
    """Start and length of a slice on one axis; length −1 means the whole axis."""
    return integer_field(fields, 1), integer_field(fields, 2, -1) if 2 in fields else -1
