"""safetensors: headers that lie about sizes, names and numbers, or that are bombs."""

import json
import struct

from .case import add, add_file


def entry(shape=(2,), offsets=(0, 8), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def packed(header, data=bytes(8), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(name, header, says="", code=1, data=bytes(8)):
    add_file(f"safetensors: {name}", "step_1.safetensors", lambda: packed(header, data), says, code)


def raw(name, header, says="", data=bytes(8)):
    """A case whose header is made when it is written, because it is large."""
    add_file(f"safetensors: {name}", "step_1.safetensors", lambda: packed(header(), data), says)


one("sound", {"w": entry()}, code=0)
one("a layer of 10^20", {"layers.100000000000000000000.weight": entry()}, code=0)
one("a layer of 10^400", {f"layers.1{'0' * 400}.weight": entry()}, code=0)
one("a number of 2^63 in a name", {"blocks.9223372036854775808.w": entry()}, code=0)
one("digits that are not ASCII", {"layers.\u0663\u0664.weight": entry()}, code=0)
one("half of a surrogate pair", {"w\ud800": entry()}, "not valid Unicode")
one("a control character in a name", {"w\x1b[31m\x07": entry()}, code=0)
one("a bad name and a bad shape", {"w\x1b[2J": entry((3,))}, "not a known dtype")
one("a name that is a formula", {"=cmd|' /C calc'!A0": entry()}, code=0)
one("a name of 2,000 characters", {"w" * 2000: entry()}, "2,000 characters")
one("an empty name", {"": entry()}, code=0)
one("a name with a zero", {"a\0b": entry()}, code=0)
one("65 axes", {"w": entry([1] * 64 + [2])}, "not a known dtype")
one("64 axes", {"w": entry([1] * 63 + [2])}, code=0)
one("a size of 2^63", {"w": entry([2**63], [0, 2**65])}, "step_1.safetensors")
one("no elements, but sizes of 2^80", {"w": entry([0, 2**80], [0, 0]), "v": entry()}, "beyond 2**63")
one("a product of 2^64 and no bytes", {"w": entry([2**32, 2**32], [0, 8])}, "not a known dtype")
one("a negative size", {"w": entry([-2], [0, 8])}, "not a known dtype")
one("a size that is a float", {"w": entry([2.0], [0, 8])}, "not a known dtype")
one("a size that is true", {"w": entry([True, 2], [0, 8])}, "not a known dtype")
one("an offset behind the end", {"w": entry([2], [8, 16])}, "gap")
one("tensors that overlap", {"w": entry(), "v": entry()}, "overlap")
one("a dtype that is a list", {"w": {**entry(), "dtype": ["F32"]}}, "not a known dtype")
one("an unknown dtype", {"w": entry(dtype="F33")}, "not a known dtype")
one("an entry that is a number", {"w": 5}, "not a known dtype")
one("a header that is a list", b"[]", "step_1.safetensors")
one("an integer of 5,000 digits", b'{"w":{"dtype":"F32","shape":[' + b"9" * 5000 + b"]}}", "not valid JSON")
one(
    "an integer of 4,000 digits", b'{"w":{"dtype":"F32","shape":[' + b"9" * 4000 + b"]}}", "not a known dtype"
)
one(
    "64 integers of 4,000 digits",
    b'{"w":{"dtype":"F32","shape":[' + b",".join([b"9" * 4000] * 64) + b'],"data_offsets":[0,8]}}',
    "not a known dtype",
)
one("a name twice", b'{"w":1,"w":2}', "appears twice")
one("invalid UTF-8", b'{"w\xff":1}', "not valid JSON")
one(
    "a metadata value that is a bomb of escapes", b'{"__metadata__":{"a":"' + b"\\u0000" * 10_000 + b'"}}', ""
)
one("NaN as a size", b'{"w":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', "not a known dtype")
one(
    "infinity as an offset",
    b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,1e999]}}',
    "not a known dtype",
)
raw("100,000 levels of brackets", lambda: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deeply")
raw("a million brackets", lambda: b'{"a":[' + b"[]," * 1_000_000 + b"1]}", "too large")
raw("three million numbers", lambda: b'{"a":[' + b"1," * 3_000_000 + b"1]}", "too large")
raw("a message of 6 MB", lambda: b'{"w":{"dtype":"' + b"x" * 6_000_000 + b'"}}', "not a known dtype")
raw(
    "a description of a million numbers",
    lambda: b'{"w":{"dtype":"F32","shape":[' + b"7," * 1_000_000 + b'7],"data_offsets":[0,8]}}',
    "not a known dtype",
)
raw(
    "250,000 empty tensors",
    lambda: json.dumps({f"w{i}": entry([0], [0, 0]) for i in range(250_000)}).encode(),
    "",
    b"",
)
raw(
    "25 MB of wide text",
    lambda: ('{"__metadata__":{"a":"\U0001f600' + "y" * 26_000_000 + '"}}').encode(),
    "too large",
)
raw(
    "names of 40 MB",
    lambda: json.dumps({f"{i:06}" + "w" * 900: entry([0], [0, 0]) for i in range(45_000)}).encode(),
    "characters in all",
    b"",
)
add_file(
    "safetensors: a length of 2^64", "step_1.safetensors", lambda: packed(b"{}", b"", 2**64 - 1), "header of"
)
add_file(
    "safetensors: a header of 2 GB in 20 bytes",
    "step_1.safetensors",
    lambda: packed(b"{}", b"x" * 10, 2**31),
    "header of",
)
add_file("safetensors: an empty file", "step_1.safetensors", lambda: b"", "is empty")
add_file("safetensors: seven bytes", "step_1.safetensors", lambda: b"\0" * 7, "too short")


def sharded(weight_map, shards=1):
    def write(folder):
        (folder / "model.safetensors.index.json").write_bytes(
            weight_map if isinstance(weight_map, bytes) else json.dumps({"weight_map": weight_map}).encode()
        )
        for i in range(shards):
            (folder / f"model-{i + 1:05}-of-{shards:05}.safetensors").write_bytes(packed({f"w{i}": entry()}))

    return write


SHARD = "model-00001-of-00001.safetensors"
add("index: a path out of the folder", sharded({"w0": "../../etc/passwd"}), "not a file name")
add("index: a shard that is a list", sharded({"w0": [SHARD]}), "not a file name")
add("index: a shard whose name is 5 MB", sharded({"w0": "x" * 5_000_000}), "which is missing")
add("index: a tensor of 5 MB of name", sharded({"x" * 5_000_000: SHARD, "w0": SHARD}), "no shard contains")
add("index: 100,000 missing tensors", sharded({f"v{i}": SHARD for i in range(100_000)}), "no shard contains")
add("index: no weight_map", sharded(b'{"weight_map": 3}'), "no weight_map")
add("index: nested brackets", sharded(b'{"weight_map":' + b"[" * 50_000), "too deeply")
add("index: an absolute path", sharded({"w0": "/dev/zero"}), "not a file name")

one("metadata that is not text", {"__metadata__": {"a": 4.0}, "w": entry()}, "__metadata__")
one(
    "values whose squares are infinite",
    {"v": entry((2,), (0, 16), "F64"), "w": entry((2,), (16, 32), "F64")},
    code=0,
    data=struct.pack("<4d", 1e300, 2e300, 1e300, 2e300),
)
one(
    "a shape that is an empty text",
    {"w": {**entry((), (0, 4)), "shape": ""}},
    "not a known dtype",
    data=bytes(4),
)
one("metadata with half of a pair", {"__metadata__": {"a": "\ud800"}, "w": entry()}, "__metadata__")
one("a mask whose name is a control character", {"\n": entry((8,), (0, 8), "BOOL")}, "no parameters")
