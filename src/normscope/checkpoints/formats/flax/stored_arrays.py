"""How Flax writes arrays into msgpack: extension types, chunks, and references to arrays stored elsewhere.

https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html. Type 1 is an array and type 3 a
NumPy scalar: a list of shape, name of the dtype, and row-major bytes. Type 2 is a complex number. An array of
more than a gigabyte is a map of flat chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, File, Tensor
from normscope.checkpoints.extents import ByteRange, Extent
from normscope.checkpoints.formats.flax.msgpack_reader import Blob, Extension, MsgpackReader
from normscope.checkpoints.formats.tiles import Tile, TiledExtent
from normscope.checkpoints.limits import AXES, limits
from normscope.errors import CorruptCheckpoint

CHUNKED = "__msgpack_chunked_array__"
_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3
_PLACEHOLDERS = ("PLACEHOLDER://", "//GDAPlaceholder:")

EntryPath = tuple[str, ...]


@dataclass(frozen=True)
class StoredArray:
    """An array in a msgpack file: what it is, and the ranges of the file that have its bytes, in order."""

    file: File
    shape: tuple[int, ...]
    dtype: str
    parts: tuple[Blob, ...]

    def tensor(self, name: str) -> Tensor:
        """The array as a tensor of this name."""
        return Tensor(name, self.shape, self.dtype, (self.file.name, self.parts))

    @property
    def extent(self) -> Extent:
        """The bytes of the array; chunks are joined as they are read."""
        if len(self.parts) == 1:
            return ByteRange(self.file, self.parts[0].start)
        width, tiles, offset = ITEM_SIZES[self.dtype], [], 0
        for part in self.parts:
            count = (part.stop - part.start) // width
            tiles.append(Tile((offset,), (count,), ByteRange(self.file, part.start)))
            offset += count
        return TiledExtent((offset,), width, tuple(tile for tile in tiles if tile.sizes[0]))


@dataclass(frozen=True)
class Reference:
    """An array that is stored outside the msgpack file; `name` is the path of its folder."""

    name: str


Leaf = StoredArray | Reference | Extension | Blob | str | int | float | None


def read_leaves(file: File) -> dict[EntryPath, Leaf]:
    """Every leaf of the tree in a msgpack file, by its path."""
    try:
        tree = MsgpackReader(file, _extended).whole()
        if not isinstance(tree, dict) or CHUNKED in tree:
            raise ValueError("one value without a name")
        leaves = dict(_leaves(tree, ()))
        if long := next((path for path in leaves if sum(map(len, path)) > limits().name), None):
            raise ValueError(f"a name of more than {limits().name:,} characters: {'.'.join(long)[:40]}…")
        return leaves
    except ValueError as error:
        raise CorruptCheckpoint(
            f"{file.name} is damaged ({str(error)[:200]!r}). Copy or save it again."
        ) from None


def _extended(reader: MsgpackReader, code: int, count: int) -> Any:
    if code in (_ARRAY, _SCALAR):
        return _array(reader)
    reader.skip(count)
    return Extension(code)


def _array(reader: MsgpackReader) -> StoredArray:
    place = reader.position
    if reader.header() != ("array", 3):
        raise ValueError(f"an array at byte {place:,} that is not a list of three")
    sizes, dtype, data = _sizes(reader.value()), reader.value(), reader.blob()
    if not isinstance(dtype, str):
        raise ValueError(f"an array at byte {place:,} without the name of a dtype")
    if dtype in ITEM_SIZES and math.prod(sizes) * ITEM_SIZES[dtype] != data.stop - data.start:
        kind = f"shape {list(sizes)} and dtype {dtype}"
        raise ValueError(f"an array at byte {place:,} of {kind} in {data.stop - data.start:,} bytes")
    return StoredArray(reader.file, sizes, dtype, (data,))


def _sizes(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, dict):
        shape = _in_order(shape, "a shape")
    if not isinstance(shape, list) or len(shape) > AXES:
        raise ValueError(f"a shape that is not a list of at most {AXES} sizes")
    if any(type(size) is not int or not 0 <= size < 1 << 62 for size in shape):
        raise ValueError("a shape that is not made of non-negative integers")
    return tuple(shape)


def _in_order(entries: Mapping[str, Any], what: str) -> list[Any]:
    """The values of {"0": …, "1": …}, as Flax writes tuples."""
    if entries.keys() != {str(i) for i in range(len(entries))}:
        raise ValueError(f"{what} whose parts are not numbered from 0")
    return [entries[str(i)] for i in range(len(entries))]


def _chunked(entries: Mapping[str, Any]) -> StoredArray:
    shape, chunks = entries.get("shape"), entries.get("chunks")
    if not isinstance(chunks, dict) or len(entries) != 3 or len(chunks) > limits().parts:
        raise ValueError("a chunked array that is not made of a shape and chunks")
    parts = _in_order(chunks, "a chunked array")
    if not parts or any(not isinstance(part, StoredArray) for part in parts):
        raise ValueError("a chunked array with a chunk that is no array")
    sizes, dtype = _sizes(shape), parts[0].dtype
    if any(part.dtype != dtype or len(part.shape) != 1 for part in parts):
        raise ValueError("a chunked array whose chunks are not flat, or of several dtypes")
    if sum(part.shape[0] for part in parts) != math.prod(sizes):
        raise ValueError(
            f"a chunked array of shape {list(sizes)} whose chunks have another number of elements"
        )
    return StoredArray(parts[0].file, sizes, dtype, tuple(part.parts[0] for part in parts))


def _leaves(value: Any, path: EntryPath) -> Iterator[tuple[EntryPath, Leaf]]:
    if isinstance(value, dict):
        if CHUNKED in value:
            yield path, _chunked(value)
        elif (name := _reference(value)) is not None:
            yield path, Reference(name)
        else:
            for key, child in value.items():
                yield from _leaves(child, (*path, key))
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield from _leaves(child, (*path, str(i)))
    elif isinstance(value, str) and value.startswith(_PLACEHOLDERS):
        prefix = next(prefix for prefix in _PLACEHOLDERS if value.startswith(prefix))
        yield path, Reference(value.removeprefix(prefix))
    else:
        yield path, value


def _reference(value: Mapping[str, Any]) -> str | None:
    """The folder of an array that T5X wrote with TensorStore; None for any other map."""
    store = value.get("kvstore")
    if not isinstance(value.get("driver"), str) or not isinstance(store, dict):
        return None
    place = store.get("path", value.get("path"))
    return place.strip("/") if isinstance(place, str) else None
