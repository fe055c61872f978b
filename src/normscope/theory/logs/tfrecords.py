"""TFRecord framing: length, checksum of the length, data, checksum of the data.

https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from normscope.errors import SeriesError

_FRAME = 12  # length and its checksum
_CHECKED = 64 << 10  # larger records hold images, graphs and histograms; only scalars are used
LARGEST_RECORD = 16 << 20  # bytes; a record of scalars has far fewer
_BATCH = 20_000
INCOMPLETE = "the last record is incomplete (still being written?) and was left out"


def is_record_file(head: bytes) -> bool:
    """Whether the file begins with the frame of a record."""
    return len(head) >= _FRAME and _length_crc(head[:8]) == head[8:_FRAME]


def read_records(place: Path, notes: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """The records of a file, each with its checksum; an incomplete last one is left out with a note.

    The checksums are verified, except those of large records: `verify` does that if such a record matters.
    Records that are too large to hold scalars are left out with a note.
    """
    batch: list[tuple[bytes, bytes]] = []
    large = 0
    with place.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while frame := file.read(_FRAME):
            length = int.from_bytes(frame[:8], "little")
            if len(frame) == _FRAME and _length_crc(frame[:8]) != frame[8:]:
                raise _corrupt(place)
            if len(frame) < _FRAME or size - file.tell() < length + 4:
                notes.append(INCOMPLETE)
                break
            if length > LARGEST_RECORD:
                large += 1
                file.seek(length + 4, os.SEEK_CUR)
                continue
            data = file.read(length + 4)
            batch.append((data[:-4], data[-4:]))
            if len(batch) == _BATCH or length > _CHECKED:
                yield from _checked(place, batch)
                batch = []
    if large:
        notes.append(f"{large:,} records of more than {LARGEST_RECORD:,} bytes were left out")
    yield from _checked(place, batch)


def verify(place: Path, data: bytes, stored: bytes) -> None:
    """Check a record that is too large to be checked in passing."""
    from normscope.checkpoints.formats.tensorflow.crc32c import masked_crc

    if len(data) > _CHECKED and masked_crc(data).to_bytes(4, "little") != stored:
        raise _corrupt(place)


def _checked(place: Path, batch: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """The batch after its checksums, which are computed for all records of one length at once."""
    from normscope.checkpoints.formats.tensorflow.crc32c import masked_crcs

    by_length: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    for data, stored in batch:
        if len(data) <= _CHECKED:
            by_length[len(data)].append((data, stored))
    for length, records in by_length.items():
        rows = np.frombuffer(b"".join(data for data, _ in records), dtype=np.uint8)
        expected = np.frombuffer(b"".join(crc for _, crc in records), dtype="<u4")
        if (masked_crcs(rows.reshape(len(records), length)) != expected).any():
            raise _corrupt(place)
    return batch


@cache
def _length_crc(length: bytes) -> bytes:
    from normscope.checkpoints.formats.tensorflow.crc32c import masked_crc

    return masked_crc(length).to_bytes(4, "little")


def _corrupt(place: Path) -> SeriesError:
    return SeriesError(f"{place} is damaged: a checksum does not match; copy the file again")
