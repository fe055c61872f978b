"""torch.distributed.checkpoint folders, read without a process group and without torch.

`.metadata` is a pickle of torch.distributed.checkpoint.metadata.Metadata: the dtype, size and chunks
of each tensor, and the file, offset and length of each chunk. Those bytes are a complete torch.save
archive of the chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, Borrowed, Buffer, Checkpoint, File, Folder, Tensor
from normscope.checkpoints.extents import Extent, Extras, TableCheckpoint
from normscope.checkpoints.formats.model_entries import no_parameters, select_model
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.checkpoints.formats.torch.pickle_machine import unpickle
from normscope.checkpoints.formats.torch.pickle_values import CallRecord, Global, shown
from normscope.checkpoints.formats.torch.pickles import read_single, read_single_value
from normscope.checkpoints.formats.torch.records import read_size
from normscope.checkpoints.limits import AXES, limits
from normscope.checkpoints.slot_names import STEP_KEYS
from normscope.checkpoints.storage.part_file import PartFile
from normscope.errors import CheckpointError, CorruptCheckpoint

METADATA = ".metadata"
_LIMIT = 300_000_000


@dataclass(frozen=True)
class _Stored:
    """Where one chunk, or one pickled object, is stored."""

    file: str
    offset: int
    length: int


def is_dcp(folder: Folder) -> bool:
    """Whether the folder contains a .metadata file and .distcp files."""
    names = folder.names()
    return METADATA in names and any(name.endswith(".distcp") for name in names)


Divide = Callable[[Tensor, list[Tile]], Iterable[tuple[Tensor, list[Tile]]]]
"""Divides a stored tensor into several tensors of the model."""


def open_dcp(folder: Folder, divide: Divide = lambda tensor, tiles: [(tensor, tiles)]) -> Checkpoint:
    """Open the model in a folder that FSDP2, or anything else with torch.distributed.checkpoint, wrote."""
    metadata = _read_metadata(folder.file(METADATA))
    try:
        return _DcpReader(folder, metadata, divide).open()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpoint(
            f"{folder.name}/{METADATA} is not in the form that torch writes "
            f"({type(error).__name__}{f': {error}'[:80] if isinstance(error, ValueError) else ''})."
        ) from None


class _DcpReader:
    """Turns the records of the metadata into a table of tensors."""

    def __init__(self, folder: Folder, metadata: Mapping[str, Any], divide: Divide) -> None:
        self.divide = divide
        self.folder, self.present = folder, set(folder.names())
        self.entries: dict[str, Any] = dict(metadata["state_dict_metadata"])
        self.paths = metadata.get("planner_data") or {}
        self.stored = _stored_chunks(metadata["storage_data"])
        self.files: dict[str, File] = {}
        self.parts = 0
        if not all(isinstance(name, str) for name in self.entries):
            raise ValueError("a name is not a string")

    def open(self) -> Checkpoint:
        """Choose the tensors of the model and find their bytes."""
        described = {name: e for name, e in self.entries.items() if _class(e) == "TensorStorageMetadata"}
        by_path = {self._path(name): name for name in described}
        if len(by_path) < len(described):
            raise ValueError("two tensors are said to be at one path")
        selection = select_model(by_path)
        tensors: dict[str, Tensor] = {}
        extents: dict[str, Extent] = {}
        for path, name in selection.names.items():
            key = by_path[path]
            for tensor, tiles in self.divide(*self._locate(name, key, described[key].state)):
                width = ITEM_SIZES[tensor.dtype]
                if tensor.name in tensors:
                    raise ValueError(f"two tensors are called {tensor.name[:80]!r}")
                extents[tensor.name] = join_tiles(key, tensor.shape, width, tiles)
                tensors[tensor.name] = tensor
        if not tensors:
            raise no_parameters(self.folder.name, selection.skipped)
        extras = Extras(selection.skipped, self._step(), networks=selection.networks)
        return TableCheckpoint("dcp", list(self.files.values()), tensors, extents, extras)

    def _path(self, name: str) -> tuple[str, ...]:
        path = self.paths.get(name) if isinstance(self.paths, dict) else None
        if not isinstance(path, tuple) or not 0 < len(path) <= AXES:
            return (name,)
        return tuple(shown(key, most=limits().name) for key in path)

    def _locate(self, name: str, key: str, state: Mapping[str, Any]) -> tuple[Tensor, list[Tile]]:
        dtype, shape = _dtype(state["properties"]), read_size(state["size"])
        tiles = []
        self.parts += len(state["chunks"])
        if self.parts > limits().parts:
            raise ValueError(f"too many chunks (limit {limits().parts:,})")
        for chunk in state["chunks"]:
            offsets, sizes = read_size(chunk.state["offsets"]), read_size(chunk.state["sizes"])
            stored = self.stored.get(key, {}).get(offsets)
            if stored is None:
                raise CorruptCheckpoint(f"{self.folder.name} does not say where {key[:200]!r} is stored.")
            tiles.append(Tile(offsets, sizes, _Chunk(self._part(stored), sizes, dtype)))
        return Tensor(name, shape, dtype, key), tiles

    def _part(self, stored: _Stored) -> PartFile:
        if stored.file not in self.present:
            raise CorruptCheckpoint(
                f"{self.folder.name} lacks the file {stored.file[:200]!r}, which {METADATA} names."
            )
        if stored.file not in self.files:
            self.files[stored.file] = self.folder.file(stored.file)
        return PartFile(self.files[stored.file], stored.offset, stored.length)

    def _step(self) -> int | None:
        """The step, which is pickled on its own; None if there is none or it cannot be read."""
        for name in self.entries:
            path = self._path(name)
            if (
                path[-1] in STEP_KEYS
                and len(path) <= 3
                and _class(self.entries[name]) == "BytesStorageMetadata"
            ):
                stored = next(iter(self.stored.get(name, {}).values()), None)
                value = read_single_value(self._part(stored)) if stored else None
                if type(value) is int and 0 <= value < 1 << 62:
                    return value
        return None


class _Chunk(Extent):
    """The archive of a chunk, opened when its bytes are first read."""

    def __init__(self, file: PartFile, sizes: tuple[int, ...], dtype: str) -> None:
        self._file, self._sizes, self._dtype = file, sizes, dtype
        self._extent: Extent | None = None

    def read(self, start: int, stop: int) -> Buffer:
        """Read from the one tensor in the archive."""
        return self._open().read(start, stop)

    def borrow(self, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Borrow from the one tensor in the archive."""
        return self._open().borrow(start, stop, mapped)

    def drop(self, start: int, stop: int) -> None:
        """Drop the bytes of the one tensor in the archive."""
        if self._extent is not None:
            self._extent.drop(start, stop)

    @property
    def zero_copy(self) -> bool:
        """Same as the one tensor in the archive."""
        return self._file.zero_copy and self._open().zero_copy

    def _open(self) -> Extent:
        if self._extent is None:
            tensor, extent = read_single(self._file)
            if tensor.shape != self._sizes or tensor.dtype != self._dtype:
                raise CorruptCheckpoint(
                    f"{self._file.name} contains {tensor.dtype} {list(tensor.shape)}, "
                    f"but {METADATA} says {self._dtype} {list(self._sizes)}."
                )
            self._extent = extent
        return self._extent


def _read_metadata(file: File) -> Mapping[str, Any]:
    if file.size > _LIMIT:
        raise CorruptCheckpoint(f"{file.name} is too large: {file.size:,} bytes (limit {_LIMIT:,}).")
    try:
        value = unpickle(memoryview(file.peek(0, file.size))).value
    except CorruptCheckpoint as error:
        raise CorruptCheckpoint(f"{file.name}: {error}. Copy or save it again.") from None
    if _class(value) != "Metadata" or not isinstance(value.state, dict):
        raise CorruptCheckpoint(f"{file.name} is not a torch.distributed.checkpoint metadata file.")
    return value.state


def _stored_chunks(storage_data: Any) -> dict[str, dict[tuple[int, ...], _Stored]]:
    """Name → offsets of a chunk → where it is stored; a pickled object has no offsets."""
    stored: defaultdict[str, dict[tuple[int, ...], _Stored]] = defaultdict(dict)
    for index, info in dict(storage_data).items():
        if info.state.get("transform_descriptors"):
            raise CheckpointError(
                "a chunk is compressed or encrypted; save the checkpoint without transforms."
            )
        offsets = read_size(index.state["offset"]) if index.state.get("offset") is not None else ()
        name, file = index.state["fqn"], info.state["relative_path"]
        if not isinstance(name, str) or not isinstance(file, str):  # before they are hashed
            raise ValueError("a name is not a string")
        stored[name][offsets] = _Stored(file, *(_integer(info.state[key]) for key in ("offset", "length")))
    return dict(stored)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("an offset or a length is not an integer")
    return value


def _class(value: Any) -> str:
    """The class name of an object of torch.distributed.checkpoint; "" for any other."""
    function = value.function if isinstance(value, CallRecord) else None
    known = isinstance(function, Global) and function.module.startswith("torch.distributed.checkpoint.")
    return function.name if isinstance(function, Global) and known else ""


def _dtype(properties: Any) -> str:
    dtype = properties.state[0] if isinstance(properties.state, tuple) else properties.state["dtype"]
    if not isinstance(dtype, Global) or dtype.module != "torch" or dtype.name not in ITEM_SIZES:
        raise ValueError(f"unknown dtype {shown(dtype)}")
    return dtype.name
