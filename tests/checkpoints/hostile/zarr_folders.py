"""Orbax: zarr metadata that announces chunks and shapes of which no byte is stored."""

import importlib.util
import json
import struct
import zlib
from random import Random

from ...fuzz.grammars import ocdbt_stores as ocdbt
from ..bundle_writer import varint
from .case import CASES, add


def zarray(shape=(4,), chunks=(4,), dtype="<f4", **more):
    compressor = more.pop("compressor", None)
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": dtype,
        "order": "C",
        "compressor": compressor,
        "fill_value": None,
        "filters": None,
        **more,
    }


def zarr3(shape=(4,), chunks=(4,), dtype="float32"):
    grid = {"name": "regular", "configuration": {"chunk_shape": list(chunks)}}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }


def one(
    name, metadata, says="", code=1, chunk=struct.pack("<4f", 1, 2, 3, 4), kind=".zarray", array="params.w"
):
    def write(folder):
        inside = folder / "checkpoint_1" / array
        inside.mkdir(parents=True)
        content = metadata() if callable(metadata) else json.dumps(metadata).encode()
        (inside / kind).write_bytes(content)
        if chunk is not None:
            target = inside / ("c/0" if kind == "zarr.json" else "0")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(chunk)

    add(f"orbax: {name}", write, says, code)


one("sound", zarray(), code=0)
one("zarr 3, sound", zarr3(), code=0, kind="zarr.json")
one("2^40 elements and no chunk", zarray([2**40], [2**24]), "bytes of values", chunk=None)
one("2^40 elements in one chunk", zarray([2**40], [2**40]), "at once", chunk=None)
one("a chunk of 2 GiB announced", zarray([2**29], [2**29]), "at once", chunk=None)
one("a chunk of 2 GiB for four numbers", zarray([4], [2**29]), "at once")
one("rows of 2 GiB", zarray([4, 2**29], [1, 2**20]), "at once", chunk=None)
one("zarr 3, a chunk of 2 GiB", zarr3([2**29], [2**29]), "at once", kind="zarr.json", chunk=None)
one("2^62 elements", zarray([2**61], [4]), "", chunk=None)
one("a product of 2^120", zarray([2**60, 2**60], [4, 4]), "", chunk=None)
one("no elements, but a size of 2^61", zarray([0, 2**61], [1, 1]), "", chunk=None)
one("a million chunks of one number", zarray([2**20], [1]), "too many chunks", chunk=None)
one("2,000 chunks of one number", zarray([2000], [1]), chunk=bytes(4), code=0)
one("empty chunks", zarray([4], [0]), "empty chunks")
one("65 axes", zarray([1] * 65, [1] * 65), "64 axes")
one("a negative size", zarray([-4], [4]), "non-negative")
one("chunks of other axes", zarray([4], [2, 2]), "non-negative")
one("a shape that is text", {**zarray(), "shape": "four"}, "damaged metadata")
one(
    "a shape that is nested",
    lambda: b'{"zarr_format":2,"chunks":[1],"dtype":"<f4","shape":' + b"[" * 90_000,
    "",
)
one("a dtype that is a list", {**zarray(), "dtype": [["a", "<f4"]]}, "unknown dtype")
one("a dtype of 100 kB", {**zarray(), "dtype": "x" * 100_000}, "unknown dtype")
one("metadata of 2 MB", lambda: b" " * 2_000_000, "too much metadata")
one("an integer of 5,000 digits", lambda: b'{"shape":[' + b"9" * 5000 + b"]}", "damaged metadata")
one("metadata that is a list", lambda: b"[]", "damaged metadata")
one("metadata that is not JSON", lambda: b"\xff\xfe", "damaged metadata")
one("no shape", {"zarr_format": 2}, "damaged metadata")
one("a chunk that is too short", zarray(), "cannot be read", chunk=b"abc")
one("a chunk that is too long", zarray(), "cannot be read", chunk=bytes(1000))
one("a chunk that is not compressed", zarray(compressor={"id": "zlib", "level": 1}), "cannot be read")
one("an unknown compressor", zarray(compressor={"id": "x" * 1000}), "cannot be read")
one("a layer of 10^20", zarray(), code=0, array="params.layers_100000000000000000000.kernel")
one("an array with control characters", zarray([3, 3], [3]), "non-negative", array="params.w\x1b[2J")


def store(name, manifest, says=""):
    def write(folder):
        (folder / "checkpoint_1").mkdir()
        (folder / "checkpoint_1" / "manifest.ocdbt").write_bytes(manifest)

    add(f"orbax: {name}", write, says)


def sharded(inner, size=2**24):
    """Shards whose chunks have so many elements."""
    plain = {"name": "bytes", "configuration": {"endian": "little"}}
    options = {"chunk_shape": [inner], "codecs": [plain], "index_codecs": [plain]}
    return {**zarr3([size], [size]), "codecs": [{"name": "sharding_indexed", "configuration": options}]}


one("zarr 3, a shard of 2^24 chunks", sharded(1), "too many chunks", kind="zarr.json")
one(
    "zarr 3, a shard of 2^24 chunks that is missing",
    sharded(1),
    "too many chunks",
    kind="zarr.json",
    chunk=None,
)
one("zarr 3, chunks of no size in a shard", sharded(0), "no size", kind="zarr.json")
one("a dtype that is half a character", zarray(dtype="\ud800"), "unknown dtype")
one("an array of a name that hides", zarray(), "cannot be read", array="params.w\x1b[2J", chunk=b"abc")


def many(folder):
    """600 arrays of 100,000 chunks each, of which none is stored."""
    for i in range(600):
        inside = folder / "checkpoint_1" / f"params.w{i}"
        inside.mkdir(parents=True)
        (inside / ".zarray").write_text(json.dumps(zarray([100_000], [1])))


add("orbax: 600 arrays of 100,000 chunks", many, "too many chunks")


def both(folder):
    one_array = folder / "checkpoint_1" / "params.w"
    one_array.mkdir(parents=True)
    (one_array / ".zarray").write_text(json.dumps(zarray()))
    (one_array / "zarr.json").write_text(json.dumps(zarr3()))
    (one_array / "0").write_bytes(bytes(16))


add("orbax: metadata of two versions", both, "two versions")


def tree(name, make, says="", code=1):
    """A store whose manifest and data `make` gives."""

    def write(folder):
        (folder / "checkpoint_1" / "d").mkdir(parents=True)
        first, data = make()
        (folder / "checkpoint_1" / "manifest.ocdbt").write_bytes(first)
        (folder / "checkpoint_1" / "d" / "data").write_bytes(data)

    add(f"orbax: {name}", write, says, code)


FILES = ocdbt.files_table([(b"", b"d/data")])
PAIRS = [
    (b"params.w/.zarray", json.dumps(zarray()).encode()),
    (b"params.w/0", struct.pack("<4f", 1, 2, 3, 4)),
]


def stored(node, height=0, data=b""):
    """A store of some nodes, of which the last is the root."""
    place = (0, len(data), len(node))
    return ocdbt.manifest(honest(), FILES, ocdbt.Child(b"", *place), height), data + node


def honest():
    return ocdbt.Lies(Random(0))


def shared(levels, omitted=1):
    """Nodes that all refer twice to the next one."""
    node, data = ocdbt.leaf(honest(), FILES, PAIRS), b""
    for height in range(1, levels + 1):
        place = (0, len(data), len(node))
        data += node
        children = [ocdbt.Child(key, *place, omitted) for key in (b"a", b"b")]
        node = ocdbt.interior(honest(), FILES, children, height)
    return stored(node, levels, data)


def packed(body):
    return stored(ocdbt.sealed(ocdbt.NODE, body, 1))


def long_keys(count):
    """Keys that share 60,000 bytes with the one before, which the node says in three bytes each."""
    columns = [varint(60_000) * (count - 1), varint(60_004) + varint(4) * (count - 1)]
    keys = b"k" * 60_000 + b"".join(i.to_bytes(4, "big") for i in range(count))
    values = varint(2) * count + bytes(count) + b"{}" * count
    return stored(ocdbt.sealed(ocdbt.NODE, b"\0" + FILES + varint(count) + b"".join(columns) + keys + values))


def long_paths(count):
    """Files whose names share 60,000 bytes with the one before."""
    table = varint(count) + varint(60_000) * (count - 1) + varint(60_001) + varint(1) * (count - 1)
    table += varint(0) * count + b"f" * (60_000 + count)
    return stored(ocdbt.sealed(ocdbt.NODE, b"\0" + table + varint(1) + bytes(100)))


tree("a store, sound", lambda: stored(ocdbt.leaf(honest(), FILES, PAIRS)), code=0)
tree("a store of 2^30 keys", lambda: shared(30), "too many keys")
tree("a store of 2^255 keys", lambda: shared(255), "too many keys")
tree("a store of 2^14 keys", lambda: shared(14), "too many keys")
tree("a store of 2^6 keys that are two", lambda: shared(6), code=0)
tree("a node that is its own child", lambda: stored(
    ocdbt.interior(honest(), FILES, [ocdbt.Child(b"", 0, 0, 100)], 1), 1), "")  # fmt: skip
tree("60 kB of key in three bytes", lambda: long_keys(30_000), "too many keys")
tree("60 kB of path in three bytes", lambda: long_paths(30_000), "too long names")


def shared_values(count):
    """Chunks that all are the same megabyte: one number, and nothing for the rest of it."""
    empty = b"\x78\x01" + b"\0\0\0\xff\xff" * 200_000 + zlib.compress(bytes(4))[2:]
    described = zarray([count], [1], compressor={"id": "zlib", "level": 1})
    pairs = [(f"params.w/{i}".encode(), (0, 0, len(empty))) for i in range(count)]
    first = (b"params.w/.zarray", json.dumps(described).encode())
    return stored(ocdbt.leaf(honest(), FILES, sorted([first, *pairs])), 0, empty)


tree("50 chunks in one place", lambda: shared_values(50), code=0)
tree("1,000 chunks in one place", lambda: shared_values(1_000), "values of")
tree("a node that unpacks to a gigabyte", lambda: packed(ocdbt.zeros(1 << 30)), "a node unpacks to more than")
tree("a node that announces a gigabyte", lambda: packed(ocdbt.frame(b"\0", 1 << 30)), "OCDBT")
tree(
    "a node of 100 MB of keys",
    lambda: packed(ocdbt.frame(b"\0" + FILES + varint(1) + varint(2**26)) + bytes(100)),
    "too many keys",
)
tree(
    "two names that become one",
    lambda: stored(ocdbt.leaf(honest(), FILES, [
        (b"params.a.b/.zarray", PAIRS[0][1]), (b"params.a/b/.zarray", PAIRS[0][1])])),
    "two arrays of one name",
)  # fmt: skip
tree(
    "an array whose name is not UTF-8",
    lambda: stored(ocdbt.leaf(honest(), FILES, [*PAIRS, (b"params.x\xff/.zarray", PAIRS[0][1])])),
    "not UTF-8",
)
store("an empty manifest", b"", "OCDBT")
store("a manifest of zeros", bytes(1000), "OCDBT")
store("a manifest that announces 2^63 bytes", b"\x0c\xdb\x20\xde" + b"\xff" * 8 + bytes(100), "OCDBT")

if importlib.util.find_spec("tensorstore") is None:  # an extra
    for name in [name for name in CASES if name.startswith("orbax")]:
        del CASES[name]
