"""Orbax: zarr metadata that announces chunks and shapes of which no byte is stored."""

import importlib.util
import json
import struct

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


store("an empty manifest", b"", "OCDBT")
store("a manifest of zeros", bytes(1000), "OCDBT")
store("a manifest that announces 2^63 bytes", b"\x0c\xdb\x20\xde" + b"\xff" * 8 + bytes(100), "OCDBT")

if importlib.util.find_spec("tensorstore") is None:  # an extra
    for name in [name for name in CASES if name.startswith("orbax")]:
        del CASES[name]
