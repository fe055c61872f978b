"""LevelDB's sorted table, the container of TensorFlow's checkpoint indexes, and Snappy, its compression.

A footer points to an index block, which points to data blocks. A block is a list of entries, whose
keys omit the prefix that they share with the previous key, followed by a compression byte and a checksum.
https://github.com/google/leveldb/blob/main/doc/table_format.md
https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

from collections.abc import Iterator

from normscope.checkpoints.base import File
from normscope.checkpoints.formats.tensorflow.crc32c import masked_crc
from normscope.checkpoints.formats.tensorflow.protobuf import read_varint
from normscope.errors import CorruptCheckpoint

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER, _TRAILER = 48, 5
_LIMIT, _BLOCK_LIMIT, _ENTRIES = 100_000_000, 50_000_000, 300_000
_CHECKED = 4_000_000  # larger blocks are not verified: checksums in Python take a second per few MB


def is_sorted_table(file: File) -> bool:
    """Whether the file ends with the footer's magic number."""
    return file.size >= _FOOTER and file.peek(file.size - 8, file.size) == MAGIC


def read_sorted_table(file: File) -> dict[bytes, bytes]:
    """Key → value, in the order of the keys."""
    if file.size > _LIMIT:
        raise CorruptCheckpoint(f"{file.name} is too large: {file.size:,} bytes (limit {_LIMIT:,}).")
    data = file.peek(0, file.size)
    try:
        return _read(data)
    except (ValueError, IndexError) as error:
        raise CorruptCheckpoint(
            f"{file.name} is damaged ({str(error)[:100]}). Copy or save it again."
        ) from None


def _read(data: bytes) -> dict[bytes, bytes]:
    position = len(data) - _FOOTER
    for _ in range(2):  # offset and size of the meta-index, which is empty here
        _, position = read_varint(data, position)
    index_offset, position = read_varint(data, position)
    index_size, _ = read_varint(data, position)
    table: dict[bytes, bytes] = {}
    seen: set[int] = set()
    for _, handle in _entries(_block(data, index_offset, index_size)):
        offset, position = read_varint(handle, 0)
        size, _ = read_varint(handle, position)
        if offset in seen:
            raise ValueError("a block is listed twice")
        seen.add(offset)
        for key, value in _entries(_block(data, offset, size)):
            table[key] = value
            if len(table) > _ENTRIES:
                raise ValueError(f"too many entries (limit {_ENTRIES:,})")
    return table


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(data):
        raise ValueError("a block extends beyond the file")
    content, kind = data[offset:end], data[end]
    stored = int.from_bytes(data[end + 1 : end + 5], "little")
    if size <= _CHECKED and masked_crc(data[offset : end + 1]) != stored:
        raise ValueError("a checksum does not match")
    if kind == 0:
        return content
    if kind == 1:
        return decompress(content, _BLOCK_LIMIT)
    raise ValueError(f"unknown compression {kind}")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if len(block) < 4 or end < 0:
        raise ValueError("a block is too short")
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position)
        fresh, position = read_varint(block, position)
        length, position = read_varint(block, position)
        if shared > len(key) or position + fresh + length > end:
            raise ValueError("an entry is truncated")
        key = key[:shared] + block[position : position + fresh]
        position += fresh
        yield key, block[position : position + length]
        position += length


def decompress(data: bytes, limit: int) -> bytes:
    """Decompress a Snappy block; ValueError if the result is longer than `limit` or the data is damaged."""
    length, position = read_varint(data, 0)
    if length > limit:
        raise ValueError("a compressed block is too large")
    result = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        if tag & 3 == 0:
            count, position = _literal_length(data, position, tag >> 2)
            piece = data[position : position + count]
            if len(piece) != count:
                raise ValueError("a compressed block is truncated")
            result += piece
            position += count
        else:
            count, back, position = _copy(data, position, tag)
            _repeat(result, count, back)
        if len(result) > length:
            raise ValueError("a compressed block is longer than its header says")
    if len(result) != length:
        raise ValueError("a compressed block is shorter than its header says")
    return bytes(result)


def _literal_length(data: bytes, position: int, code: int) -> tuple[int, int]:
    if code < 60:
        return code + 1, position
    extra = code - 59
    return int.from_bytes(data[position : position + extra], "little") + 1, position + extra


def _copy(data: bytes, position: int, tag: int) -> tuple[int, int, int]:
    """Length, distance back, and position of the next tag."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[position], position + 1
    extra = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, int.from_bytes(data[position : position + extra], "little"), position + extra


def _repeat(result: bytearray, count: int, back: int) -> None:
    """Append `count` bytes from `back` bytes ago; they may overlap the bytes being appended."""
    if not 0 < back <= len(result):
        raise ValueError("a compressed block refers to bytes before its start")
    start = len(result) - back
    while count > 0:
        piece = result[start : start + min(count, back)]
        result += piece
        start += len(piece)
        count -= len(piece)
