"""The tree of an OCDBT store, walked before tensorstore reads it: a few bytes can describe endless trees.

Nodes may be shared: thirty nodes that each refer twice to the next have 2^30 keys. Keys and paths omit what
they share with the ones before, and nodes are compressed. tensorstore believes all that, and has no limits.
So this counts what it would make, and refuses too much; whether the tree is sound is left to tensorstore.
https://google.github.io/tensorstore/kvstore/ocdbt/index.html
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from normscope.checkpoints.base import File, Folder
from normscope.errors import CorruptCheckpoint
from normscope.plugins import require

MANIFEST = "manifest.ocdbt"
_NUMBERED = re.compile(r"manifest\.[0-9a-f]{16}")
_MANIFEST_MAGIC, _NODE_MAGIC = b"\x0c\xdb\x3a\x2a", b"\x0c\xdb\x20\xde"
_ENTRIES, _KEYS = 300_000, 50_000_000
"""Entries of the whole tree, and bytes of all keys; a node that is reached twice counts twice."""
_FEW = 2_000
"""Entries that a tree may have however small the store is; beyond that, one for each byte stored."""
_VALUES, _EXPANSION = 1 << 27, 32
"""Bytes of all values: so many, and more for each byte of the store. Values may share their bytes."""
_NODE, _MANIFEST = 1 << 26, 1 << 20
"""Bytes of one node, unpacked or not, and of a manifest. (tensorstore writes nodes of 8 MB.)"""
_UNPACKED, _RATIO = 1 << 26, 32
"""Bytes that are unpacked here: so many, and more for each byte of the store."""
_WINDOW = 27
"""Bits of the distance from which a frame may copy."""
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_NOWHERE = (1 << 64) - 1


@dataclass(frozen=True)
class _Place:
    """Where a node is: the path that leads to its files, its file, offset and length, and its height."""

    base: bytes
    path: bytes
    offset: int
    length: int
    height: int


@dataclass(frozen=True)
class _Node:
    """Entries of a node, bytes of keys and values, and the nodes below with what their keys omit."""

    entries: int
    keys: int
    values: int
    below: tuple[tuple[_Place, int], ...] = ()


def check_tree(folder: Folder, size: int) -> None:
    """Raise CorruptCheckpoint if the tree of a store of `size` bytes has too many keys, or too long ones."""
    tree = _Tree(folder, size)
    try:
        tree.check()
    except (ValueError, IndexError) as error:
        raise CorruptCheckpoint(
            f"{folder.name} is not a readable OCDBT store ({str(error)[:200]})."
        ) from None
    finally:
        tree.close()


class _Tree:
    """Walks a tree, and counts."""

    def __init__(self, folder: Folder, size: int) -> None:
        self._folder, self._left = folder, _UNPACKED + _RATIO * size
        self._most = min(_ENTRIES, _FEW + size)
        self._values = _VALUES + _EXPANSION * size
        self._files: dict[bytes, File] = {}
        self._folders: dict[str, Folder] = {"": folder}
        self._nodes: dict[_Place, _Node] = {}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def check(self) -> None:
        """Walk the newest version of the manifest, or of all others if the first says that they follow."""
        names = [MANIFEST]
        root = self._root(MANIFEST)
        if root is None:
            names = [name for name in self._folder.names() if _NUMBERED.fullmatch(name)]
        for name in names:
            found = root if name == MANIFEST else self._root(name)
            if found is not None and found.offset != _NOWHERE:
                self._walk(found)

    def _root(self, name: str) -> _Place | None:
        """The root of a manifest's newest version; None if it only describes the store."""
        body = _Body(self._bytes(name.encode(), 0, None), _MANIFEST_MAGIC, _MANIFEST)
        body.skip(16)
        if body.byte():
            return None
        for _ in range(2):
            body.varint()
        body.byte()
        if body.varint():
            body.skip(4)
        files = _paths(body, b"")
        count = body.varint()
        for _ in range(count):
            body.varint()
        heights = [body.byte() for _ in range(count)]
        return _places(body, files, heights)[-1] if count else None

    def _walk(self, root: _Place) -> None:
        entries = keys = values = 0
        left = [(root, 0)]
        while left:
            place, prefix = left.pop()
            if place not in self._nodes:
                self._nodes[place] = self._read(place)
            node = self._nodes[place]
            entries += node.entries
            keys += node.keys + prefix * node.entries
            values += node.values
            if values > self._values:
                raise ValueError(f"values of {values:,} bytes (limit {self._values:,})")
            if entries > self._most or keys > _KEYS:
                raise ValueError(f"too many keys (limit {self._most:,}, of {_KEYS:,} bytes)")
            left += [(each, prefix + omitted) for each, omitted in node.below]

    def _read(self, place: _Place) -> _Node:
        body = _Body(self._bytes(place.path, place.offset, place.length), _NODE_MAGIC, self._left)
        height = body.byte()
        if height != place.height:
            raise ValueError("a node has another height than its parent says")
        files = _paths(body, place.base)
        count = body.varint()
        if not 0 < count <= _ENTRIES:
            raise ValueError(f"a node has {count:,} entries (limit {_ENTRIES:,})")
        shared = [0, *(body.varint() for _ in range(count - 1))]
        lengths = [one + body.varint() for one in shared]
        if sum(lengths) > _KEYS:
            raise ValueError(f"too many keys (limit {_KEYS:,} bytes)")
        omitted = [body.varint() for _ in range(count)] if height else []
        body.skip(sum(lengths) - sum(shared))
        below: tuple[tuple[_Place, int], ...] = ()
        values = 0
        if not height:
            values = sum(body.varint() for _ in range(count))
        else:
            below = tuple(zip(_places(body, files, [height - 1] * count), omitted, strict=True))
        self._left -= body.unpacked
        return _Node(count, sum(lengths), values, below)

    def _bytes(self, path: bytes, start: int, length: int | None) -> bytes:
        """Bytes of a file of the store, by its path."""
        file = self._file(path)
        most = _MANIFEST if length is None else _NODE
        stop = file.size if length is None else start + length
        if stop > file.size or stop - start > most:
            raise ValueError(f"a node of {stop - start:,} bytes at {start:,} of a file of {file.size:,}")
        return file.peek(start, stop)

    def _file(self, path: bytes) -> File:
        if path not in self._files:
            above, _, name = path.decode("utf-8", "surrogateescape").rpartition("/")
            folder = self._inside(above)
            if folder is None or not name or name not in folder.names():
                raise ValueError(f"its file {path[:80]!r} is missing")
            self._files[path] = folder.file(name)
        return self._files[path]

    def _inside(self, path: str) -> Folder | None:
        if path not in self._folders:
            above, _, name = path.rpartition("/")
            parent = self._inside(above)
            if not name or parent is None or f"{name}/" not in parent.names():
                return None
            self._folders[path] = parent.folder(f"{name}/")
        return self._folders[path]


class _Body:
    """What a header and a checksum enclose."""

    def __init__(self, data: bytes, magic: bytes, most: int) -> None:
        if data[:4] != magic or len(data) < 18:
            raise ValueError(f"it does not begin with {magic.hex()}")
        self._data, self._at, self.unpacked = data, 12, 0
        if self.varint():
            raise ValueError("an unknown version")
        kind = self.varint()
        if kind > 1:
            raise ValueError("an unknown compression")
        if kind:
            self._data, self._at = _unpacked(data[self._at : -4], min(most, _NODE)), 0
            self.unpacked = len(self._data)

    def byte(self) -> int:
        """The next byte."""
        self.skip(1)
        return self._data[self._at - 1]

    def skip(self, count: int) -> None:
        """Leave bytes out."""
        self._at += count
        if self._at > len(self._data):
            raise ValueError("it is truncated")

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self.skip(count)
        return self._data[self._at - count : self._at]

    def varint(self) -> int:
        """The next integer, stored with seven bits per byte."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a varint is longer than 64 bits")


def _unpacked(packed: bytes, most: int) -> bytes:
    """A frame of Zstandard; nothing of one that is too large is kept."""
    zstd = require(_ZSTD, "orbax", "reading OCDBT stores")
    unpacker = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    try:
        found: bytes = unpacker.decompress(packed, max_length=most + 1)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(found) > most:
        raise ValueError(f"a node unpacks to more than {most:,} bytes")
    if not unpacker.eof:
        raise ValueError("it is truncated")
    return found


def _paths(body: _Body, base: bytes) -> list[tuple[bytes, bytes]]:
    """Base and whole path of each data file that a node refers to."""
    count = body.varint()
    if count > _ENTRIES:
        raise ValueError(f"a node has {count:,} files (limit {_ENTRIES:,})")
    shared = [0, *(body.varint() for _ in range(count - 1))]
    fresh = [body.varint() for _ in range(count)]
    bases = [body.varint() for _ in range(count)]
    if sum(shared) + sum(fresh) + len(base) * count > _KEYS:
        raise ValueError(f"a node has files of too long names (limit {_KEYS:,} bytes)")
    found, path = [], b""
    for same, new, length in zip(shared, fresh, bases, strict=False):
        path = path[:same] + body.take(new)
        found.append((base + path[:length], base + path))
    return found


def _places(body: _Body, files: list[tuple[bytes, bytes]], heights: list[int]) -> list[_Place]:
    """The references to nodes: columns of files, of offsets, and of lengths."""
    numbers, offsets, lengths = ([body.varint() for _ in heights] for _ in range(3))
    found = []
    for number, offset, length, height in zip(numbers, offsets, lengths, heights, strict=True):
        base, path = files[number]
        found.append(_Place(base, path, offset, length, height))
    return found
