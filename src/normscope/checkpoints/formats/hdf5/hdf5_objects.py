"""Objects of an HDF5 file: their headers, lists of messages, and the links that name other objects.

Read are the groups that are written unless a newer format is asked for (a symbol table: a B-tree of names
and a heap of texts), and those whose links are in the header. A link into another file is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from normscope.checkpoints.formats.hdf5.hdf5_bytes import (
    UNDEFINED,
    BytesPiece,
    Hdf5Source,
    StructureBytes,
)
from normscope.errors import CheckpointError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
DATASPACE, LINK_INFO, DATATYPE, EXTERNAL, LINK, LAYOUT = 0x01, 0x02, 0x03, 0x07, 0x06, 0x08
FILTERS, ATTRIBUTE, _CONTINUATION, _SYMBOLS = 0x0B, 0x0C, 0x10, 0x11
_MESSAGES, _DEEPEST_TREE = 70_000, 16
_SHARED = 2
AGAIN = "Load it in Keras and save it again, or convert it to safetensors."


@dataclass(frozen=True)
class HeaderMessage:
    """One message of an object's header, and where in the file its data begins."""

    kind: int
    data: bytes
    address: int
    shared: bool

    def piece(self) -> BytesPiece:
        """The data, to be taken apart; a message that is kept elsewhere in the file is refused."""
        if self.shared:
            raise ValueError("a message is shared between objects, which is not read")
        return BytesPiece(self.data)


@dataclass(frozen=True)
class Hdf5Link:
    """A name in a group; `address` is that of an object header, None for a link by name in the same file."""

    name: str
    address: int | None


class Hdf5Objects:
    """The objects of one file."""

    def __init__(self, source: Hdf5Source) -> None:
        self.bytes = StructureBytes(source)
        self.root = self._read_superblock()

    def _read_superblock(self) -> int:
        """The address of the root group."""
        head = self.bytes.at(0, min(96, self.bytes.source.size))
        head.expect(SIGNATURE)
        version = head.number(1)
        if version > 3:
            raise CheckpointError(
                f"{self.bytes.source.name} is HDF5 with a superblock of version {version}; "
                f"0 to 3 are read. {AGAIN}"
            )
        head.take(4 if version < 2 else 0)
        if head.take(2) != b"\x08\x08":
            raise ValueError("addresses are not of 8 bytes")
        head.take({0: 9, 1: 13}.get(version, 1))
        if head.number(8) != 0:
            raise ValueError("its addresses do not count from its beginning")
        head.take(24 if version < 2 else 16)
        if version < 2:
            head.take(8)
        return head.number(8)

    def messages(self, address: int) -> list[HeaderMessage]:
        """All messages of the header at an address."""
        if self.bytes.at(address, 4).data == b"OHDR":
            return self._messages_2(address)
        head = self.bytes.at(address, 16)
        if head.number(1) != 1:
            raise ValueError("an object has a header of an unknown version")
        head.take(7)
        blocks, found = [(address + 16, head.number(4))], list[HeaderMessage]()
        while blocks:
            start, size = blocks.pop(0)
            piece = self.bytes.at(start, size)
            while piece.left >= 8:
                kind, length, flags = piece.number(2), piece.number(2), piece.number(4)
                at = start + piece.position
                self._add(found, blocks, HeaderMessage(kind, piece.take(length), at, bool(flags & _SHARED)))
        return found

    def _messages_2(self, address: int) -> list[HeaderMessage]:
        head = self.bytes.at(address, min(64, self.bytes.source.size - address))
        head.expect(b"OHDR")
        head.take(1)
        flags = head.number(1)
        head.take((16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0))
        size = head.number(1 << (flags & 3))
        blocks, found = [(address + head.position, size)], list[HeaderMessage]()
        while blocks:
            start, size = blocks.pop(0)
            piece = self.bytes.at(start, size)
            if found:
                piece.expect(b"OCHK")
                piece = BytesPiece(piece.data[:-4])
                piece.take(4)
            while piece.left >= 4 + (2 if flags & 4 else 0):
                kind, length, marks = piece.number(1), piece.number(2), piece.number(1)
                piece.take(2 if flags & 4 else 0)
                at = start + piece.position
                self._add(found, blocks, HeaderMessage(kind, piece.take(length), at, bool(marks & _SHARED)))
        return found

    def _add(self, found: list[HeaderMessage], blocks: list[tuple[int, int]], message: HeaderMessage) -> None:
        found.append(message)
        if len(found) > _MESSAGES:
            raise ValueError(f"an object has more than {_MESSAGES:,} messages")
        if message.kind == _CONTINUATION:
            piece = message.piece()
            blocks.append((piece.number(8), piece.number(8)))

    def links(self, messages: list[HeaderMessage]) -> Iterator[Hdf5Link]:
        """The links of a group."""
        for message in messages:
            if message.kind == _SYMBOLS:
                piece = message.piece()
                yield from self._symbols(piece.number(8), piece.number(8))
            elif message.kind == LINK:
                yield self._link(message.piece())
            elif message.kind == LINK_INFO:
                self._check_dense(message.piece())

    def _link(self, piece: BytesPiece) -> Hdf5Link:
        piece.take(1)
        flags = piece.number(1)
        kind = piece.number(1) if flags & 8 else 0
        piece.take((8 if flags & 4 else 0) + (1 if flags & 16 else 0))
        name = piece.take(piece.number(1 << (flags & 3))).decode("utf-8", "replace")
        if kind > 1:
            raise self._elsewhere(f"the link {name[:100]!r}")
        return Hdf5Link(name, piece.number(8) if kind == 0 else None)

    def _elsewhere(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.bytes.source.name} refers to another file ({what}), which is never opened. "
            "Save the model in one file."
        )

    def _check_dense(self, piece: BytesPiece) -> None:
        piece.take(1)
        piece.take(8 if piece.number(1) & 1 else 0)
        if piece.number(8) != UNDEFINED:
            raise CheckpointError(
                f"{self.bytes.source.name} keeps the names of a group in the form that HDF5 calls dense "
                f"(libver='latest' or track_order=True), which is not read. {AGAIN}"
            )

    def _symbols(self, tree: int, heap: int) -> Iterator[Hdf5Link]:
        head = self.bytes.at(heap, 32)
        head.expect(b"HEAP")
        head.take(4)
        size, _, address = head.number(8), head.number(8), head.number(8)
        texts = self.bytes.at(address, size).data
        for node in self._leaves(tree):
            piece = self.bytes.at(node, 8)
            piece.expect(b"SNOD")
            piece.take(2)
            entries = self.bytes.at(node + 8, 40 * piece.number(2))
            while entries.left >= 40:
                name, object_at, kind = entries.number(8), entries.number(8), entries.number(4)
                entries.take(20)
                end = texts.find(b"\0", name) if name < len(texts) else -1
                if end < 0:
                    raise ValueError("a name is not in the heap of its group")
                yield Hdf5Link(texts[name:end].decode("utf-8", "replace"), None if kind == 2 else object_at)

    def _leaves(self, tree: int) -> Iterator[int]:
        """The addresses below the lowest level of a B-tree of names."""
        for _, child in self.tree(tree, kind=0, key=8):
            yield child

    def tree(self, address: int, kind: int, key: int, level: int = -1) -> Iterator[tuple[bytes, int]]:
        """The keys and children of the lowest nodes of a B-tree, in order; each level must be one lower."""
        head = self.bytes.at(address, 24)
        head.expect(b"TREE")
        here, own, count = head.number(1), head.number(1), head.number(2)
        if here != kind or own > _DEEPEST_TREE or (level >= 0 and own != level):
            raise ValueError("a B-tree is damaged")
        entries = self.bytes.at(address + 24, count * (key + 8))
        for _ in range(count):
            text, child = entries.take(key), entries.number(8)
            if own == 0:
                yield text, child
            else:
                yield from self.tree(child, kind, key, own - 1)
