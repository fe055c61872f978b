"""CRC-32C, rotated and shifted by a constant, as LevelDB and TFRecord do for data that has checksums itself.

https://github.com/google/leveldb/blob/main/util/crc32c.h
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
        table.append(byte)
    return table


_CRC = _crc_table()
_CRC_ARRAY = np.array(_CRC, dtype=np.uint32)
_FEW = 40  # rows, below which a loop over the bytes of each is faster


def masked_crc(data: bytes) -> int:
    """The masked checksum of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crcs(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The masked checksum of every row: for many rows all at once, in a loop over the columns."""
    if len(rows) < _FEW:
        return np.array([masked_crc(row.tobytes()) for row in rows], dtype=np.uint32)
    crc = np.full(len(rows), 0xFFFFFFFF, dtype=np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = crc >> np.uint32(8) ^ _CRC_ARRAY[(crc ^ column) & np.uint32(0xFF)]
    crc ^= np.uint32(0xFFFFFFFF)
    masked: NDArray[np.uint32] = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    return masked
