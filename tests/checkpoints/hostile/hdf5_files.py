"""HDF5 and Keras archives: links that leave the file or go in circles, sizes and counts that lie."""

import io
import json
import struct
import zipfile

import numpy as np

from .case import add, add_file

try:
    import h5py
except ImportError:  # the library writes the files; without it there are no cases
    h5py = None


def hdf5(write, **options):
    def content():
        out = io.BytesIO()
        with h5py.File(out, "w", **options) as file:
            file["w"] = np.ones((4, 3), "f4")
            write(file)
        return out.getvalue()

    return content


def one(name, write, says="", code=1, **options):
    if h5py is not None:
        add_file(f"hdf5: {name}", "step_1.h5", hdf5(write, **options), says, code)


def changed(name, old, new, says="", code=1, write=lambda file: None):
    """A sound file in which some bytes of its structure are others."""

    def content():
        data = hdf5(write)()
        assert old in data, name
        return data.replace(old, new, 1)

    if h5py is not None:
        add_file(f"hdf5: {name}", "step_1.h5", content, says, code)


def circle(file):
    group = file.create_group("a/b")
    group["back"] = file["a"]
    group["root"] = file["/"]


def deep(file):
    for _ in range(200):
        file = file.create_group("g")


def chunked(file, **options):
    file.create_dataset("c", data=np.ones((40, 40), "f4"), chunks=(8, 8), **options)


def virtual(file):
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,))
    file.create_virtual_dataset("v", layout)


def bomb(file):
    file.create_dataset("b", data=np.zeros((4096, 4096), "f4"), chunks=(4096, 4096), compression="gzip")


def shape(*sizes):
    return struct.pack(f"<{len(sizes)}Q", *sizes)


one("sound", lambda file: None, code=0)
one("a group in a circle", circle, code=0)
one("groups 200 deep", deep, "nested more than 64")
one("10,000 empty groups", lambda file: [file.create_group(f"g{i}") for i in range(10_000)], code=0)
one("a link into another file", lambda f: f.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/")), "refers")
one(
    "values in another file",
    lambda f: f.create_dataset("x", (2,), "f4", external=[("/etc/passwd", 0, 8)]),
    "in another file",
)
one("a virtual dataset", virtual, "is not read")
one("shapes of 2^60 without values", lambda f: f.create_dataset("x", (2**40, 2**20), "f4"), code=0)
one("a chunk of 64 MB of zeros", bomb, code=0)
one("names of a new kind", lambda f: [f.create_group(f"g{i}") for i in range(20)], "dense", libver="latest")
one("a name of 2,000 characters", lambda f: f.__setitem__("n" * 2000, np.ones(2, "f4")), "2,000 characters")
one("a name with control characters", lambda f: f.__setitem__("\x1b[2J\n", np.ones(2, "f4")), code=0)
one(
    "two names that become one",
    lambda f: [f.create_dataset(b"x" + end, data=np.ones(2, "f4")) for end in (b"\xfe", b"\xff")],
    "two datasets are called",
)
one(
    "a path that is the name of another",
    lambda f: [f.create_dataset("/".join(["a"] * n + ["w"]), data=np.ones(n, "f4")) for n in (1, 2, 3)],
    code=0,
)
one("only text", lambda f: (f.__delitem__("w"), f.__setitem__("t", "text")), "no model parameters")
changed("a size of 2^61", shape(4, 3), shape(2**61, 3), "does not match its shape")
changed("sizes whose product is 2^122", shape(4, 3), shape(2**61, 2**61), "does not match its shape")
changed("a size below zero", shape(4, 3), shape(2**64 - 1, 3), "impossible")
changed("a heap of 2^62 bytes", b"HEAP" + bytes(4) + shape(88), b"HEAP" + bytes(4) + shape(2**62), "beyond")
changed("an unknown superblock", b"\x89HDF\r\n\x1a\n\0", b"\x89HDF\r\n\x1a\n\7", "version 7")
changed("a tree that is none", b"TREE\0", b"TREE\7", "B-tree")
changed("a tree of 200 levels", b"TREE\0\0", b"TREE\0\xc8", "B-tree")
changed("65,535 names in one node", b"SNOD\1\0\1\0", b"SNOD\1\0\xff\xff", "beyond")
changed("a tree of chunks of 15 levels", b"TREE\1\0", b"TREE\1\x0f", "not a valid HDF5 file", write=chunked)


def repeated_headers():
    """A header whose continuation is itself: each round adds messages."""
    data = bytearray(hdf5(lambda file: None)())
    root = struct.unpack_from("<Q", data, 64)[0]
    start = root + 16
    data[start : start + 8] = struct.pack("<HHI", 0x10, 16, 0)
    data[start + 8 : start + 24] = struct.pack("<QQ", start, 24)
    return bytes(data)


if h5py is not None:
    add_file("hdf5: a header that continues with itself", "step_1.h5", repeated_headers, "messages")
add_file("hdf5: only the signature", "step_1.h5", lambda: b"\x89HDF\r\n\x1a\n" + bytes(60), "")
add_file(
    "hdf5: the signature and noise",
    "step_1.h5",
    lambda: b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08" + b"\7" * 200,
    "",
)


def archive(config, weights, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        file.writestr("config.json", config)
        file.writestr("model.weights.h5", weights)
    return out.getvalue()


def keras(name, content, says="", code=1):
    if h5py is not None:
        add_file(f"keras: {name}", "step_1.keras", content, says, code)


def sound():
    return hdf5(lambda file: None)()


keras("sound", lambda: archive("{}", sound()), code=0)
keras("a config that is a list", lambda: archive("[]", sound()), "should be a JSON object")
keras("a config 100,000 deep", lambda: archive('{"a":' * 100_000 + "1" + "}" * 100_000, sound()), "")
keras("a config of code", lambda: archive('{"module": "os", "class_name": "system"}', sound()), code=0)
keras("no HDF5 inside", lambda: archive("{}", b"x" * 100), "not a valid HDF5 file")
keras(
    "80 MB of zeros, deflated",
    lambda: archive("{}", bytes(80_000_000), zipfile.ZIP_DEFLATED),
    "compressed weights of 80,000,000",
)


def shards(weight_map):
    def write(folder):
        (folder / "step_1.weights.json").write_text(json.dumps({"weight_map": weight_map}))

    return write


add("keras: shards in other folders", shards({"/a/vars": ["../../etc/passwd"]}), "is not an index")
add("keras: a shard that is missing", shards({"/a/vars": ["step_1_00000.weights.h5"]}), "are missing")
add("keras: 20,000 shards", shards({f"/{i}": f"{i}.h5" for i in range(20_000)}), "too many files")
