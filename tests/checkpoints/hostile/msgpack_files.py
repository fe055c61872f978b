"""Flax's msgpack: lengths and counts that lie, keys twice, arrays of other shapes than their bytes."""

import struct

import numpy as np

from .case import add, add_file


def packed(value):
    """msgpack of dictionaries, lists and plain values; bytes are put in as they are."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return head(0xDE, len(value)) + b"".join(packed(k) + packed(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return head(0xDC, len(value)) + b"".join(map(packed, value))
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return head(0xDA, len(data)) + data
    if isinstance(value, bool) or value is None:
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    return b"\xcf" + struct.pack(">Q", value % 2**64) if value >= 0 else b"\xd3" + struct.pack(">q", value)


def head(code, count):
    """The beginning of a map, a list or a text with a count of 16 or 32 bits."""
    return (
        bytes([code]) + struct.pack(">H", count)
        if count < 1 << 16
        else bytes([code + 1]) + struct.pack(">I", count)
    )


def extension(kind, data, length=None):
    return b"\xc9" + struct.pack(">IB", len(data) if length is None else length, kind) + data


def binary(data, length=None):
    return b"\xc6" + struct.pack(">I", len(data) if length is None else length) + data


def stored(shape, dtype, data, length=None, kind=1):
    """An array as Flax writes it, whatever shape, dtype and bytes say."""
    return extension(kind, packed([list(shape), dtype, binary(data)]), length)


def array(value):
    value = np.asarray(value)
    return stored(value.shape, value.dtype.name, value.tobytes(), kind=1 if value.ndim else 3)


W = array(np.ones(3, np.float32))


def chunked(shape, chunks):
    return {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}


def one(name, content, says="damaged", code=1):
    add_file(f"msgpack: {name}", "step_1.msgpack", lambda: packed(content()), says, code)


def nested(depth, inner=W):
    return b"\x81\xa1a" * depth + inner


one("sound", lambda: {"w": W}, "", 0)
one("a map of 2^32 entries", lambda: b"\xdf\xff\xff\xff\xff\xa1w" + W, "")
one(
    "a map of 2^32 entries inside",
    lambda: {"w": W, "x": b"\xdf\xff\xff\xff\xff" + bytes(99)},
    "more than there can",
)
one(
    "a list of 2^32 entries",
    lambda: {"w": W, "x": b"\xdd\xff\xff\xff\xff" + bytes(99)},
    "more than there can be",
)
one("a million levels of maps", lambda: nested(1_000_000), "")
one("a million levels of maps inside", lambda: {"w": W, "x": nested(1_000_000)}, "levels deep")
one("a million levels of lists", lambda: {"w": W, "x": b"\x91" * 1_000_000 + b"\xc0"}, "levels deep")
one(
    "a million empty lists",
    lambda: {"w": W, "x": b"\xdd" + struct.pack(">I", 10**6) + b"\x90" * 10**6},
    "there can be",
)
one(
    "400,000 empty maps",
    lambda: {"w": W, "x": b"\xdd" + struct.pack(">I", 400_000) + b"\x80" * 400_000},
    "",
    0,
)
one("many lists of many", lambda: {"w": W, **{f"x{i}": [[0] * 60_000] for i in range(20)}}, "more than")
one("a key twice", lambda: b"\x82\xa1w" + W + b"\xa1w" + W, "the key 'w' twice")
one("a key twice as text and number", lambda: b"\x82\xa11" + W + b"\x01" + W, "the key '1' twice")
one("a key that is a map", lambda: b"\x82\xa1w" + W + b"\x80" + W, "a key at byte")
one("a key that is an array", lambda: b"\x82\xa1w" + W + W + W, "a key at byte")
one("a key of 5,000 characters", lambda: {"w": W, "k" * 5000: W}, "a key at byte")
one("a key of 2,000 characters", lambda: {"k" * 2000: W}, "1,000 characters")
one(
    "names of ten megabytes",
    lambda: {f"{i:04}" * 200: {f"{i}" * 250: W for i in range(10)} for i in range(5000)},
    "",
)
one("a key that is not UTF-8", lambda: b"\x82\xa1w" + W + b"\xa2\xff\xfe" + W, "damaged")
one(
    "a key with control characters",
    lambda: {"w": W, "a\x1b[2J": stored([4], "float32", bytes(12))},
    "damaged",
)
one("a text of 2^32 bytes", lambda: {"w": W, "x": b"\xdb\xff\xff\xff\xff"}, "truncated")
one("bytes of 2^32", lambda: {"w": W, "x": b"\xc6\xff\xff\xff\xff"}, "truncated")
one("a code that is never used", lambda: {"w": W, "x": b"\xc1"}, "the code 0xc1")
one("bytes after the end", lambda: packed({"w": W}) + b"\0", "after its end")
one("only a key", lambda: b"\x81\xa1w", "")
one("a file of zeros", lambda: bytes(1000), "")
one("an extension of 2^32 bytes", lambda: {"w": extension(1, b"", 2**32 - 1)}, "truncated")
one(
    "an extension longer than its array",
    lambda: {"w": stored([3], "float32", bytes(12), 200), "x": bytes([0xC0] * 200)},
)
one("an extension shorter than its array", lambda: {"w": stored([3], "float32", bytes(12), 8)}, "truncated")
one("an unknown extension", lambda: {"w": W, "x": extension(99, b"abc")}, "", 0)
one("an extension in an extension", lambda: {"w": extension(1, extension(1, W))}, "not a list of three")
one("10,000 extensions in each other", lambda: {"w": b"\x92" + b"\xd4\x01\x93" * 10_000}, "")
one("a shape of 2^63", lambda: {"w": stored([2**63], "float32", bytes(12))}, "non-negative integers")
one("a product of 2^120", lambda: {"w": stored([2**60, 2**60], "float32", bytes(12))}, "an array at byte")
one("a negative shape", lambda: {"w": stored([-3], "float32", bytes(12))}, "non-negative integers")
one("a shape of floats", lambda: {"w": stored([3.0], "float32", bytes(12))}, "non-negative integers")
one("65 axes", lambda: {"w": stored([1] * 65, "float32", bytes(4))}, "at most 64 sizes")
one("another shape than its bytes", lambda: {"w": stored([4], "float32", bytes(12))}, "an array at byte")
one("another dtype than its bytes", lambda: {"w": stored([3], "float64", bytes(12))}, "an array at byte")
one("no elements, but sizes of 2^61", lambda: {"w": W, "v": stored([0, 2**61, 2**61], "float32", b"")}, "", 0)
one("an unknown dtype", lambda: {"w": W, "v": stored([3], "x" * 4000, bytes(12))}, "", 0)
one("a dtype that is a number", lambda: {"w": stored([3], 4, bytes(12))}, "name of a dtype")
one(
    "a shape that is a map",
    lambda: {"w": extension(1, packed([{"1": 3}, "float32", binary(bytes(12))]))},
    "numbered",
)
one("a complex number", lambda: {"w": W, "c": extension(2, packed([1.0, 2.0]))}, "", 0)
one("chunks", lambda: {"w": chunked({"0": 6}, {"0": W, "1": W})}, "", 0)
one(
    "chunks of another number",
    lambda: {"w": chunked({"0": 7}, {"0": W, "1": W})},
    "another number of elements",
)
one("chunks of 2^62 elements", lambda: {"w": chunked({"0": 2**61, "1": 2**61}, {"0": W})}, "another number")
one("chunks that are missing", lambda: {"w": chunked({"0": 6}, {"0": W, "2": W})}, "not numbered from 0")
one(
    "chunks of two dtypes",
    lambda: {"w": chunked({"0": 6}, {"0": W, "1": array(np.ones(3))})},
    "several dtypes",
)
one(
    "chunks of chunks",
    lambda: {"w": chunked({"0": 6}, {"0": W, "1": chunked({"0": 3}, {"0": W})})},
    "no array",
)
one("chunks that are no arrays", lambda: {"w": chunked({"0": 6}, {"0": 3})}, "no array")
one("no chunks", lambda: {"w": chunked({"0": 0}, {})}, "no array")
one("chunks and more", lambda: {"w": {**chunked({"0": 3}, {"0": W}), "x": 1}}, "made of a shape and chunks")
one("a chunked array without a name", lambda: chunked({"0": 3}, {"0": W}), "without a name")
one(
    "120,000 chunks",
    lambda: {"w": chunked({"0": 0}, {str(i): stored([0], "float32", b"") for i in range(120_000)})},
    "",
)
one(
    "250,000 arrays",
    lambda: {f"w{i}": stored([], "float32", bytes(4)) for i in range(65_000)} | {"x": [W] * 140_000},
    "",
)
one("a layer of 10^20", lambda: {"layers_100000000000000000000": {"kernel": W}}, "", 0)
one("a step of 2^64", lambda: {"params": {"w": W}, "step": 2**64 - 1}, "", 0)
one(
    "a step that is an array of 2^40",
    lambda: {"params": {"w": W}, "step": stored([2**40], "int32", b"")},
    "an array at",
)


def folder_with(content):
    def write(folder):
        (folder / "checkpoint_1").mkdir()
        (folder / "checkpoint_1" / "checkpoint").write_bytes(packed(content()))

    return write


def reference(path):
    return {"driver": "zarr", "kvstore": {"driver": "file", "path": path}, "metadata": {}}


def in_folder(name, content, says, code=1):
    add(f"msgpack: {name}", folder_with(content), says, code)


in_folder("a folder with all arrays in one file", lambda: {"optimizer": {"target": {"w": W}}}, "", 0)
in_folder(
    "a reference out of the folder",
    lambda: {"optimizer": {"target": {"w": reference("../../etc")}}},
    "lacks 1",
)
in_folder(
    "a reference to a device", lambda: {"optimizer": {"target": {"w": reference("/dev/zero")}}}, "lacks 1"
)
in_folder("a placeholder to nothing", lambda: {"params": {"w": "PLACEHOLDER://params.w"}}, "lacks 1 arrays")
in_folder("a folder with a damaged file", lambda: b"\x81\xa9optimizer\x81\xa6target\x82\xa1w" + W, "damaged")
one(
    "two names that become one",
    lambda: {"params": {"a.b": W, "a": {"b": W}}},
    "both called 'a.b'",
)
one(
    "a model in the optimizer and beside it",
    lambda: {"optimizer": {"target": {"w": W}}, "target": {"w": W}},
    "twice",
)
