"""GGUF: counts, lengths and offsets that no file has."""

import struct

from .case import add_file


def string(value):
    return struct.pack("<Q", len(value)) + value


def info(name=b"blk.0.w", shape=(2,), kind=0, offset=0, axes=None):
    sizes = struct.pack(f"<{len(shape)}Q", *shape)
    return (
        string(name)
        + struct.pack("<I", len(shape) if axes is None else axes)
        + sizes
        + struct.pack("<IQ", kind, offset)
    )


def gguf(infos, pairs=(), data=bytes(64), count=None, pair_count=None, version=3):
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(infos) if count is None else count,
        len(pairs) if pair_count is None else pair_count,
    )
    head += b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


def one(name, content, says="", code=1):
    add_file(f"gguf: {name}", "step_1.gguf", content, says, code)


def array(kind, count, data=b""):
    return string(b"a") + struct.pack("<IIQ", 9, kind, count) + data


one("sound", lambda: gguf([info()]), code=0)
one("a size of 2^63", lambda: gguf([info(shape=[2**63])]), "too large")
one("a product of 2^120", lambda: gguf([info(shape=[2**60, 2**60])]), "truncated")
one("no elements, but sizes of 2^61", lambda: gguf([info(), info(b"v", [0, 2**61, 2**61])]), code=0)
one("nine axes", lambda: gguf([info(shape=[1] * 9)]), "9 axes")
one("2^32 axes", lambda: gguf([info(axes=2**32 - 1)]), "axes")
one("an offset of 2^64", lambda: gguf([info(offset=2**64 - 1)]), "truncated")
one("an offset behind the end", lambda: gguf([info(offset=60)]), "truncated")
one("2^64 tensors", lambda: gguf([info()], count=2**64 - 1), "limit")
one("2^64 pairs", lambda: gguf([info()], pair_count=2**64 - 1), "limit")
one("250,000 tensors that are not there", lambda: gguf([info()], count=250_000), "damaged header")
one("a name of 2^63 bytes", lambda: gguf([struct.pack("<Q", 2**63) + b"w"]), "a name of")
one("a name of 2,000 bytes", lambda: gguf([info(b"w" * 2000)]), "2,000 characters")
one("a name that is not UTF-8", lambda: gguf([info(b"w\xff\xfe")]), code=0)
one("a name with control characters", lambda: gguf([info(b"w\x1b[2J", [2**50])]), "truncated")
one("a name twice", lambda: gguf([info(), info()]), "twice")
one("a layer of 10^20", lambda: gguf([info(b"blk.100000000000000000000.attn_q.weight")]), code=0)
one("an unknown version", lambda: gguf([info()], version=99), "version 99")
one("an unknown type", lambda: gguf([info(kind=4_000_000)]), "")
one("blocks that are not whole", lambda: gguf([info(kind=8)]), "")
one(
    "an alignment of 0",
    lambda: gguf([info()], [string(b"general.alignment") + struct.pack("<II", 4, 0)]),
    "alignment",
)
one(
    "an alignment of 2^31",
    lambda: gguf([info()], [string(b"general.alignment") + struct.pack("<II", 4, 2**31)]),
    "alignment",
)
one(
    "an alignment that is text",
    lambda: gguf([info()], [string(b"general.alignment") + struct.pack("<I", 8) + string(b"x")]),
    code=0,
)
one("an array of 2^63 numbers", lambda: gguf([info()], [array(10, 2**63)]), "damaged header")
one("an array of 2^63 texts", lambda: gguf([info()], [array(8, 2**63)]), "damaged header")
one("three million empty texts", lambda: gguf([info()], [array(8, 3_000_000, bytes(24_000_000))]), code=0)
one(
    "eight million empty texts",
    lambda: gguf([info()], [array(8, 8_000_000, bytes(64_000_000))]),
    "too much metadata",
)
one(
    "arrays of arrays of arrays",
    lambda: gguf([info()], [string(b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50]),
    "too much metadata",
)
one(
    "a text of 150 MB with one wide character",
    lambda: gguf(
        [info()], [string(b"a") + struct.pack("<I", 8) + string("\U0001f600".encode() + b"y" * 150_000_000)]
    ),
    code=0,
)
one(
    "a key of 150 MB",
    lambda: gguf([info()], [string(b"y" * 150_000_000) + struct.pack("<II", 4, 1)]),
    "a name of",
)
one(
    "20,000 tensors in one place",
    lambda: gguf([info(b"w%d" % i, [500_000]) for i in range(20_000)], data=bytes(2_000_000)),
    "bytes of values",
)
one("2,000 tensors in one place", lambda: gguf([info(b"w%d" % i, [1]) for i in range(2_000)]), code=0)
one("only the first letters", lambda: b"GGUF" + bytes(20), "version 0")
