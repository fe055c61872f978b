"""Members of a zip archive as places in the file, so that stored members can be mapped.

Only what torch.save and numpy.savez write is understood: one disk, no encryption, members
stored without compression. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from normscope.checkpoints.base import Buffer, File
from normscope.checkpoints.formats.extents import Extent
from normscope.checkpoints.storage.inflate import Inflated
from normscope.errors import CorruptCheckpoint

STORED, DEFLATED = 0, 8
_END, _END64, _LOCATOR64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_DIRECTORY_LIMIT, _MEMBER_LIMIT = 100_000_000, 300_000


@dataclass(frozen=True)
class Member:
    """One file in the archive: where its local header is, and how many bytes it has."""

    header: int
    size: int
    packed: int
    method: int


class MemberExtent(Extent):
    """A stored member; its local header is read when its bytes are first wanted."""

    __slots__ = ("_start", "file", "member")

    def __init__(self, file: File, member: Member) -> None:
        self.file, self.member = file, member
        self._start: int | None = None

    def read(self, start: int, stop: int) -> Buffer:
        """Straight from the archive."""
        return self.file.read(self.start + start, self.start + stop)

    def drop(self, start: int, stop: int) -> None:
        """Straight to the archive."""
        self.file.drop(self.start + start, self.start + stop)

    @property
    def zero_copy(self) -> bool:
        """As the archive does."""
        return self.file.zero_copy

    @property
    def start(self) -> int:
        """Where in the archive the member's bytes begin."""
        if self._start is None:
            self._start = data_start(self.file, self.member)
        return self._start


def is_zip(file: File) -> bool:
    """Whether the file begins like an archive with at least one member."""
    return file.size >= 22 and file.peek(0, 4) in (b"PK\x03\x04", b"PK\x05\x06")


def read_directory(file: File) -> dict[str, Member]:
    """The archive's members by name, from the directory at its end."""
    start, size, count = _locate_directory(file)
    if size > _DIRECTORY_LIMIT or count > _MEMBER_LIMIT:
        raise CorruptCheckpoint(f"{file.name} claims {count:,} members, more than any real checkpoint has.")
    data = file.peek(start, start + size)
    members: dict[str, Member] = {}
    position = 0
    try:
        for _ in range(count):
            name, member, position = _read_entry(data, position)
            if name in members:
                raise CorruptCheckpoint(f"{file.name} has the member {name[:200]!r} twice.")
            members[name] = member
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"{file.name} has a damaged archive directory ({error}).") from None
    return members


def member_extent(file: File, member: Member) -> Extent:
    """The member's bytes, unpacked if need be."""
    stored = MemberExtent(file, member)
    if member.method == STORED and member.packed == member.size:
        return stored
    if member.method == DEFLATED:
        return Inflated(stored, member.packed, member.size, file.name)
    raise CorruptCheckpoint(
        f"{file.name} has a member compressed by method {member.method}, which is unknown."
    )


def data_start(file: File, member: Member) -> int:
    """Offset of the member's first byte; it lies behind a local header of its own length."""
    if member.header + _LOCAL.size > file.size:
        raise CorruptCheckpoint(f"{file.name} is truncated: a member should start at byte {member.header:,}.")
    fields = _LOCAL.unpack(file.read(member.header, member.header + _LOCAL.size))
    if fields[0] != b"PK\x03\x04":
        raise CorruptCheckpoint(f"{file.name} has no member at byte {member.header:,}, where one should be.")
    start: int = member.header + _LOCAL.size + fields[9] + fields[10]
    if start + member.packed > file.size:
        raise CorruptCheckpoint(f"{file.name} is truncated: a member of {member.packed:,} bytes is cut.")
    return start


def _locate_directory(file: File) -> tuple[int, int, int]:
    tail_start = max(0, file.size - _END.size - 65535)
    # A comment is rare, so the plain end is tried before the whole tail is searched.
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
        raise CorruptCheckpoint(f"{file.name} has an archive directory that lies outside the file.")
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
        raise ValueError("an entry does not begin as it should")
    method, header = fields[4], fields[16]
    packed, size, name_length, extra_length, comment_length = fields[8:13]
    name_end = position + _ENTRY.size + name_length
    extra_end = name_end + extra_length
    if extra_end + comment_length > len(data):
        raise ValueError("an entry is cut short")
    if 0xFFFFFFFF in (size, packed, header):
        size, packed, header = _wide(data[name_end:extra_end], size, packed, header)
    name = data[position + _ENTRY.size : name_end].decode("utf-8", "replace")
    return name, Member(header, size, packed, method), extra_end + comment_length


def _wide(extra: bytes, *narrow: int) -> list[int]:
    """Replace each field that is all ones by its 8-byte value from the zip64 extra."""
    position = 0
    while position + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, position)
        if tag == 1:
            count = sum(value == 0xFFFFFFFF for value in narrow)
            values = iter(struct.unpack_from(f"<{count}Q", extra, position + 4))
            return [next(values) if value == 0xFFFFFFFF else value for value in narrow]
        position += 4 + length
    return list(narrow)
