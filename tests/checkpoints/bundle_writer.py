"""Writes TensorFlow's tensor bundles without TensorFlow, for tests and benchmarks."""

from pathlib import Path

import numpy as np

from normscope.checkpoints.formats.tensorflow.crc32c import masked_crc
from normscope.checkpoints.formats.tensorflow.leveldb import MAGIC


def varint(value):
    result = b""
    while value >= 0x80:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def block(entries, compress):
    content, previous = b"", b""
    for key, value in entries:
        shared = next(
            (i for i, (a, b) in enumerate(zip(previous, key, strict=False)) if a != b),
            min(len(previous), len(key)),
        )
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        previous = key
    content += (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    content = compress(content)
    kind = b"\0" if compress is bytes else b"\1"
    return content, kind + masked_crc(content + kind).to_bytes(4, "little")


def write_table(path, pairs, per_block, compress):
    data, handles = b"", []
    for start in range(0, len(pairs), per_block):
        content, trailer = block(pairs[start : start + per_block], compress)
        handles.append((pairs[start][0], varint(len(data)) + varint(len(content))))
        data += content + trailer
    content, trailer = block(handles, bytes)
    footer = varint(0) + varint(0) + varint(len(data)) + varint(len(content))
    path.write_bytes(data + content + trailer + footer.ljust(40, b"\0") + MAGIC)


def field(number, value):
    """A protobuf field: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def write_bundle(prefix, arrays):
    """Write float32 arrays as one shard: `prefix`.index and its data file."""
    entries, offset = [(b"", field(1, 1))], 0
    with Path(f"{prefix}.data-00000-of-00001").open("wb") as data:
        for name, array in sorted(arrays.items()):
            shape = b"".join(field(2, field(1, size)) for size in array.shape)
            entry = field(1, 1) + field(2, shape) + field(4, offset) + field(5, array.nbytes)
            entries.append((name.encode(), entry))
            data.write(np.ascontiguousarray(array, "<f4").data)
            offset += array.nbytes
    write_table(Path(f"{prefix}.index"), entries, 16, bytes)
