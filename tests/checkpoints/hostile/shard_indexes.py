"""Shards that an index lists twice, links to elsewhere, and arrays of kinds that are no parameters."""

import json

import numpy as np

from .archives import archive, npy
from .case import add, add_file
from .safetensors_files import entry, packed
from .zarr_folders import one as orbax
from .zarr_folders import zarr3, zarray

INDEX = "model.safetensors.index.json"
SOUND = packed({"w": entry()})


def folder(files, links=()):
    """One step with these files, and links as pairs of a name and what it points to."""

    def write(place):
        step = place / "step_1"
        step.mkdir()
        for name, content in files.items():
            (step / name).write_bytes(content)
        for name, target in links:
            (step / name).symlink_to(target)

    return write


def index(weight_map, **more):
    return {INDEX: json.dumps({"metadata": {}, "weight_map": weight_map, **more}).encode()}


add("shards: sound", folder({**index({"w": "a.safetensors"}), "a.safetensors": SOUND}), code=0)
add("shards: an index that names itself", folder(index({"w": INDEX})), "step_1")
add("shards: 100,000 files", folder(index({f"w{i}": f"s{i}.safetensors" for i in range(100_000)})), "missing")
add(
    "shards: one tensor in two shards",
    folder(
        {
            **index({"w": "a.safetensors", "v": "b.safetensors"}),
            "a.safetensors": SOUND,
            "b.safetensors": packed({"w": entry(), "v": entry(offsets=(8, 16))}, bytes(16)),
        }
    ),
    code=0,  # the index says which one is meant
)
add(
    "shards: the wrong one of two",
    folder(
        {
            **index({"w": "b.safetensors", "v": "a.safetensors"}),
            "a.safetensors": SOUND,
            "b.safetensors": packed({"v": entry()}),
        }
    ),
    "step_1",
)
add("shards: a name with an end of line", folder(index({"w": "a\n.safetensors"})), "step_1")
add("shards: a name with a zero", folder(index({"w": "a\0.safetensors"})), "step_1")
add("shards: a name of only dots", folder(index({"w": ".."})), "not a file name")
add("shards: an empty name", folder(index({"w": ""})), "step_1")
add(
    "shards: a total size of 10^400",
    folder({**index({"w": "a.safetensors"}, metadata={"total_size": 10**400}), "a.safetensors": SOUND}),
    code=0,
)
add(
    "shards: a link to a device",
    folder(index({"w": "a.safetensors"}), [("a.safetensors", "/dev/zero")]),
    "step_1",
)
add(
    "shards: a link to itself",
    folder(index({"w": "a.safetensors"}), [("a.safetensors", "a.safetensors")]),
    "step_1",
)
add(
    "shards: a link to a sound file",
    folder({**index({"w": "a.safetensors"}), "real": SOUND}, [("a.safetensors", "real")]),
    code=0,
)
add(
    "beside: a config of 100 MB",
    folder({"model.safetensors": SOUND, "config.json": b'{"a":[' + b"1," * 50_000_000 + b"1]}"}),
    code=0,
)
add(
    "beside: a tokenizer of 100,000 brackets",
    folder({"model.safetensors": SOUND, "tokenizer.json": b"[" * 100_000}),
    code=0,
)


def array(name, content, says="", code=1):
    add_file(
        f"npy: {name}",
        "step_1.npz",
        lambda: archive({"w.npy": npy([2], data=bytes(8)), "v.npy": content()}),
        says,
        code,
    )


def header(text, data=b""):
    sound = npy([2], data=data)
    start = sound.index(b"{")
    return (
        sound[:8] + len(text).to_bytes(2, "little") + text + sound[start + len(sound[start:]) - len(data) :]
    )


array(
    "a structured dtype",
    lambda: header(
        b"{'descr': [('a', '<f4'), ('b', '<f8')], 'fortran_order': False, 'shape': (2,), }\n", bytes(24)
    ),
    code=0,
)
array(
    "a nested dtype",
    lambda: header(
        b"{'descr': [('a', [('b', '<f4', (10, 10))])], 'fortran_order': False, 'shape': (2,), }\n", bytes(800)
    ),
    code=0,
)
array(
    "a void of 2^40 bytes",
    lambda: header(b"{'descr': '|V1099511627776', 'fortran_order': False, 'shape': (2,), }\n"),
    "step_1.npz",
)
array(
    "texts",
    lambda: header(b"{'descr': '<U10', 'fortran_order': False, 'shape': (2,), }\n", bytes(80)),
    code=0,
)
array(
    "dates",
    lambda: header(b"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }\n", bytes(16)),
    says="invalid header",
)
array("big-endian numbers", lambda: npy([2], ">f4", np.array([1, 2], ">f4").tobytes()), code=0)
array(
    "an order that is a number",
    lambda: header(b"{'descr': '<f4', 'fortran_order': 2, 'shape': (2,), }\n", bytes(8)),
    "step_1.npz",
)
array(
    "a shape that is a list",
    lambda: header(b"{'descr': '<f4', 'fortran_order': False, 'shape': [2], }\n", bytes(8)),
    "step_1.npz",
)
array(
    "a shape of floats",
    lambda: header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,), }\n", bytes(8)),
    "step_1.npz",
)
array(
    "a header with another key",
    lambda: header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1, }\n", bytes(8)),
    "step_1.npz",
)
array(
    "a header without a shape",
    lambda: header(b"{'descr': '<f4', 'fortran_order': False, }\n", bytes(8)),
    "step_1.npz",
)
array(
    "a header that multiplies",
    lambda: header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)*10**9, }\n"),
    "step_1.npz",
)

orbax("a fill value that is text", zarray(fill_value="x" * 100_000))
orbax("a fill value of 10^400", zarray(fill_value=10**400), chunk=None)
orbax("filters that are not known", zarray(filters=[{"id": "pickle"}]))
orbax("a compressor with a level of 10^9", zarray(compressor={"id": "zlib", "level": 10**9}))
orbax("a compressor that is a list", zarray(compressor=[1]))
orbax("objects", zarray(dtype="|O"))
orbax("a structured dtype", zarray(dtype=[["a", "<f4"]]))
orbax("zarr 3, a dtype of objects", zarr3(dtype="object"), kind="zarr.json")
orbax("an order of neither kind", zarray(order="X"))
