"""LevelDB's sorted table, the container of TensorFlow's checkpoint indexes.

A footer points to an index block, which points to data blocks; a block is a run of
entries whose keys leave out the prefix they share with the one before, behind it one
byte for the compression and a checksum.
https://github.com/google/leveldb/blob/main/doc/table_format.md
"""

from __future__ import annotations

from collections.abc import Iterator

from normscope.checkpoints.base import File
from normscope.checkpoints.formats.tensorflow.protobuf import read_varint
from normscope.checkpoints.formats.tensorflow.snappy import decompress
from normscope.errors import CorruptCheckpoint

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER, _TRAILER = 48, 5
_LIMIT, _BLOCK_LIMIT, _ENTRIES = 100_000_000, 50_000_000, 300_000
_CHECKED = 4_000_000  # pure-Python checksums run at a few MB/s; no real index is larger


def is_sorted_table(file: File) -> bool:
    """Whether the file ends with the footer's magic number."""
    return file.size >= _FOOTER and file.peek(file.size - 8, file.size) == MAGIC


def read_sorted_table(file: File) -> dict[bytes, bytes]:
    """Every key with its value, in the order of the keys."""
    if file.size > _LIMIT:
        raise CorruptCheckpoint(f"{file.name} is larger than any real index ({file.size:,} bytes).")
    data = file.peek(0, file.size)
    try:
        return _read(data)
    except (ValueError, IndexError) as error:
        raise CorruptCheckpoint(
            f"{file.name} is damaged ({str(error)[:100]}). Copy or save it again."
        ) from None


def _read(data: bytes) -> dict[bytes, bytes]:
    position = len(data) - _FOOTER
    for _ in range(2):  # of the meta-index, which is empty here
        _, position = read_varint(data, position)
    index_offset, position = read_varint(data, position)
    index_size, _ = read_varint(data, position)
    table: dict[bytes, bytes] = {}
    seen: set[int] = set()
    for _, handle in _entries(_block(data, index_offset, index_size)):
        offset, position = read_varint(handle, 0)
        size, _ = read_varint(handle, position)
        if offset in seen:
            raise ValueError("a block stands twice")
        seen.add(offset)
        for key, value in _entries(_block(data, offset, size)):
            table[key] = value
            if len(table) > _ENTRIES:
                raise ValueError("more entries than any real checkpoint has")
    return table


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(data):
        raise ValueError("a block lies outside the file")
    content, kind = data[offset:end], data[end]
    stored = int.from_bytes(data[end + 1 : end + 5], "little")
    if size <= _CHECKED and _masked_crc(data[offset : end + 1]) != stored:
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
            raise ValueError("an entry is cut short")
        key = key[:shared] + block[position : position + fresh]
        position += fresh
        yield key, block[position : position + length]
        position += length


def _crc_table() -> list[int]:
    """Of the Castagnoli polynomial, reflected."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> int:
    """LevelDB rotates the checksum and adds a constant, so that data with checksums in it is safe."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
