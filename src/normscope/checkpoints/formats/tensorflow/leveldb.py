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
_LIMIT, _UNPACKED_LIMIT, _ENTRIES = 32_000_000, 8_000_000, 300_000
_KEY, _KEYS = 8_192, 50_000_000
"""Bytes of one key, and of all keys: a few bytes can repeat a long key many times."""
_CHECKED = 4_000_000  # bytes; the rest is not verified: checksums in Python take a second per few MB


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
    blocks, keys, last = _Blocks(data), 0, None
    for _, handle in _entries(blocks.read(index_offset, index_size)):
        offset, position = read_varint(handle, 0)
        size, _ = read_varint(handle, position)
        for key, value in _entries(blocks.read(offset, size)):
            if last is not None and key <= last:
                raise ValueError("its keys are not in order, or repeated")
            table[key], last = value, key
            keys += len(key)
            if len(table) > _ENTRIES or keys > _KEYS:
                raise ValueError(f"too many entries (limit {_ENTRIES:,}, with keys of {_KEYS:,} bytes)")
    return table


class _Blocks:
    """Reads blocks; together they cannot be larger than the file, and what they unpack to is limited."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left, self._unpacked, self._unchecked = len(data), _UNPACKED_LIMIT, _CHECKED

    def read(self, offset: int, size: int) -> bytes:
        """The content of the block, unpacked."""
        data, end = self._data, offset + size
        self._left -= size + _TRAILER
        if end + _TRAILER > len(data):
            raise ValueError("a block extends beyond the file")
        if self._left < 0:
            raise ValueError("blocks overlap")
        content, kind = data[offset:end], data[end]
        self._unchecked -= size
        stored = int.from_bytes(data[end + 1 : end + 5], "little")
        if self._unchecked >= 0 and masked_crc(data[offset : end + 1]) != stored:
            raise ValueError("a checksum does not match")
        if kind == 0:
            return content
        if kind != 1:
            raise ValueError(f"unknown compression {kind}")
        content = decompress(content, self._unpacked)
        self._unpacked -= len(content)
        return content


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
        if shared + fresh > _KEY:
            raise ValueError(f"a key of {shared + fresh:,} bytes (limit {_KEY:,})")
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
    piece = result[len(result) - back :][:count]
    result += (piece * -(-count // len(piece)))[:count]
