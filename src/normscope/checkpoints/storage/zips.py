"""Zip archives: where each member's bytes are, so that stored members can be mapped into memory.

Only what torch.save, numpy.savez and numpy.savez_compressed write is supported: one disk, no
encryption, members stored or deflated. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from normscope.checkpoints.base import Buffer, File, StoredRange
from normscope.checkpoints.extents import Extent, OffsetExtent
from normscope.errors import CorruptCheckpoint

STORED, DEFLATED = 0, 8
_END, _END64, _LOCATOR64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_DIRECTORY_LIMIT, _MEMBER_LIMIT, _NAME_LIMIT = 40_000_000, 300_000, 4_096
_LONGEST_LOCAL = 1024
"""Bytes of a local header with name and padding, usually fewer; a longer one costs another request."""
_CHUNK, _STREAMS = 64 * 1024, 8
_NEWEST, _ENCODED = (
    63,
    0x61,
)  # version 6.3; flags of encrypted members and patches, whose bytes are not values


@dataclass(frozen=True)
class Member:
    """One file in the archive: offset of its local header, size, compressed size, compression method.

    `end` is where the next member or the directory begins.
    """

    header: int
    size: int
    packed: int
    method: int
    end: int = 0


class MemberExtent(OffsetExtent):
    """The bytes of a member as stored; its local header is read when they are first read."""

    __slots__ = ("_offset", "base", "member")
    base: File

    def __init__(self, file: File, member: Member) -> None:
        self.base, self.member = file, member
        self._offset: int | None = None

    @property
    def offset(self) -> int:
        """Where in the archive the member's bytes begin."""
        if self._offset is None:
            self._offset = data_start(self.base, self.member)
        return self._offset

    def stored_range(self, start: int, stop: int) -> StoredRange | None:
        """The bytes with the local header, as long as its length is not known."""
        if self._offset is not None or not self.member.end:
            return super().stored_range(start, stop)
        header, end = self.member.header, self.member.end
        last = end if stop == self.member.packed else min(end, header + _LONGEST_LOCAL + stop)
        return StoredRange(self.base, header + _LOCAL.size + start if start else header, last)


def is_zip(file: File) -> bool:
    """Whether the file begins with the signature of an archive, empty or not."""
    return file.size >= 22 and file.peek(0, 4) in (b"PK\x03\x04", b"PK\x05\x06")


def read_directory(file: File) -> dict[str, Member]:
    """The archive's members by name, from the directory at its end."""
    start, size, count = _locate_directory(file)
    if size > _DIRECTORY_LIMIT or count > _MEMBER_LIMIT:
        raise CorruptCheckpoint(
            f"{file.name} has too large an archive directory: {count:,} members in {size:,} bytes "
            f"(limit {_MEMBER_LIMIT:,} members, {_DIRECTORY_LIMIT:,} bytes)."
        )
    data = file.peek(start, start + size)
    members: dict[str, Member] = {}
    position = packed = 0
    try:
        for _ in range(count):
            name, member, position = _read_entry(data, position)
            if name in members:
                raise CorruptCheckpoint(f"{file.name} contains the member {name[:200]!r} twice.")
            members[name] = member
            packed += member.packed + _LOCAL.size
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"{file.name} has a damaged archive directory ({error}).") from None
    if packed > start:
        raise CorruptCheckpoint(
            f"{file.name} has members of {packed:,} bytes in an archive of {file.size:,}: they overlap, "
            "or it is truncated. Copy or save it again."
        )
    return _with_ends(members, start)


def _with_ends(members: dict[str, Member], directory: int) -> dict[str, Member]:
    begins = sorted({member.header for member in members.values()} | {directory})
    ends = dict(pairwise(begins))
    return {name: replace(member, end=ends.get(member.header, 0)) for name, member in members.items()}


def member_extent(file: File, member: Member) -> Extent:
    """The member's bytes, decompressed if necessary."""
    stored = MemberExtent(file, member)
    if member.method == STORED and member.packed == member.size:
        return stored
    if member.method == DEFLATED:
        return InflatedExtent(stored, member.packed, file.name)
    raise CorruptCheckpoint(
        f"{file.name} has a member compressed with the unknown method {member.method}; "
        "stored (0) and deflated (8) are supported."
    )


def data_start(file: File, member: Member) -> int:
    """Offset of the member's first byte, which follows a local header of variable length."""
    if member.header + _LOCAL.size > file.size:
        raise CorruptCheckpoint(f"{file.name} is truncated: a member should start at byte {member.header:,}.")
    fields = _LOCAL.unpack(file.read(member.header, member.header + _LOCAL.size))
    if fields[0] != b"PK\x03\x04":
        raise CorruptCheckpoint(f"{file.name} has no member at byte {member.header:,}, where one should be.")
    start: int = member.header + _LOCAL.size + fields[9] + fields[10]
    if start + member.packed > file.size:
        raise CorruptCheckpoint(
            f"{file.name} is truncated: it ends inside a member of {member.packed:,} bytes."
        )
    return start


def _locate_directory(file: File) -> tuple[int, int, int]:
    tail_start = max(0, file.size - _END.size - 65535)
    # Archive comments are rare, so look for the end record without one before searching the whole tail.
    plain = file.size - _END.size
    tail = file.peek(plain, file.size) if plain >= 0 else b""
    if tail[:4] == b"PK\x05\x06":
        tail_start, found = plain, 0
    else:
        tail = file.peek(tail_start, file.size)
        found = tail.rfind(b"PK\x05\x06")
    if found < 0 or len(tail) - found < _END.size:
        raise CorruptCheckpoint(f"{file.name} is truncated: its archive has no directory. Save it again.")
    end = tail_start + found
    _, _, _, _, count, size, start, _ = _END.unpack_from(tail, found)
    if count == 0xFFFF or size == 0xFFFFFFFF or start == 0xFFFFFFFF:
        start, size, count = _locate_directory64(file, end) or (start, size, count)
    if start + size > end:
        raise CorruptCheckpoint(
            f"{file.name} has an archive directory that extends beyond the end of the file."
        )
    return start, size, count


def _locate_directory64(file: File, end: int) -> tuple[int, int, int] | None:
    at = end - _LOCATOR64.size
    if at < 0:
        return None
    signature, _, offset, _ = _LOCATOR64.unpack(file.peek(at, end))
    if signature != b"PK\x06\x07" or offset + _END64.size > at:
        return None
    fields = _END64.unpack(file.peek(offset, offset + _END64.size))
    return (fields[9], fields[8], fields[7]) if fields[0] == b"PK\x06\x06" else None


def _read_entry(data: bytes, position: int) -> tuple[str, Member, int]:
    fields = _ENTRY.unpack_from(data, position)
    if fields[0] != b"PK\x01\x02":
        raise ValueError("an entry has an invalid signature")
    needed, flags, method, header = fields[2] & 0xFF, fields[3], fields[4], fields[16]
    if needed > _NEWEST or flags & _ENCODED:
        raise ValueError("a member is encrypted, a patch, or of a later version of the format")
    packed, size, name_length, extra_length, comment_length = fields[8:13]
    name_end = position + _ENTRY.size + name_length
    extra_end = name_end + extra_length
    if extra_end + comment_length > len(data):
        raise ValueError("an entry is truncated")
    if name_length > _NAME_LIMIT:
        raise ValueError(f"a name of {name_length:,} bytes, limit {_NAME_LIMIT:,}")
    if 0xFFFFFFFF in (size, packed, header):
        size, packed, header = _wide(data[name_end:extra_end], size, packed, header)
    name = data[position + _ENTRY.size : name_end].decode("utf-8", "replace")
    return name, Member(header, size, packed, method), extra_end + comment_length


def _wide(extra: bytes, *narrow: int) -> list[int]:
    """Replace each field that is 0xFFFFFFFF by its 8-byte value from the zip64 extra field."""
    position = 0
    while position + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, position)
        if tag == 1:
            count = sum(value == 0xFFFFFFFF for value in narrow)
            values = iter(struct.unpack_from(f"<{count}Q", extra, position + 4))
            return [next(values) if value == 0xFFFFFFFF else value for value in narrow]
        position += 4 + length
    return list(narrow)


class InflatedExtent(Extent):
    """The decompressed bytes of a deflated extent.

    The decompressors of the latest reads are kept, so that a few readers can each continue where
    they were; any other position is reached from the nearest one before it. Only the bytes that
    are read are held in memory, so a small archive that claims terabytes does no harm.
    """

    def __init__(self, packed: Extent, packed_size: int, name: str) -> None:
        self._packed, self._packed_size, self._name = packed, packed_size, name
        self._streams: OrderedDict[int, _InflateStream] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def sequential(self) -> bool:
        """Always true."""
        return True

    def read(self, start: int, stop: int) -> Buffer:
        """Decompress from the nearest known position before `start`."""
        with self._lock:
            nearest = max((at for at in self._streams if at <= start), default=None)
            stream = self._streams.pop(nearest) if nearest is not None else self._new_stream()
        while stream.position < start:
            stream.pull(min(_CHUNK, start - stream.position))
        result = bytearray()
        while len(result) < stop - start:
            # In small pieces, which the allocator reuses: every large one would cause page faults.
            result += stream.pull(min(_CHUNK, stop - start - len(result)))
        with self._lock:
            self._streams[stop] = stream
            while len(self._streams) > _STREAMS:
                self._streams.popitem(last=False)
        return result

    def _new_stream(self) -> _InflateStream:
        return _InflateStream(self._packed, self._packed_size, self._name)


class _InflateStream:
    """A decompressor and its position in the decompressed bytes."""

    def __init__(self, packed: Extent, packed_size: int, name: str) -> None:
        self._packed, self._packed_size, self._name = packed, packed_size, name
        self._stream: Any = zlib.decompressobj(-zlib.MAX_WBITS)
        self._waiting: Buffer = b""
        self._fed = self.position = 0

    def pull(self, limit: int) -> bytes:
        """The next bytes: at least one, at most `limit`."""
        while True:
            if not self._waiting and self._fed < self._packed_size:
                end = min(self._fed + _CHUNK, self._packed_size)
                self._waiting, self._fed = self._packed.read(self._fed, end), end
            ended = self._stream.eof or not len(self._waiting)
            try:
                piece: bytes = self._stream.decompress(self._waiting, limit)
            except zlib.error as error:
                raise CorruptCheckpoint(
                    f"{self._name} cannot be decompressed ({error}). Copy or save it again."
                ) from None
            self._waiting = self._stream.unconsumed_tail
            self.position += len(piece)
            if piece:
                return piece
            if ended:
                raise CorruptCheckpoint(
                    f"{self._name} decompresses to fewer bytes than its header says. Save it again."
                )
