"""HDF5 and Keras archives: files of h5py whose structure, and sometimes values, are damaged."""

import io
import os
import signal
import zipfile
from pathlib import Path
from random import Random

import h5py
import numpy as np

from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided
from ..mutations import damaged, integer, name

_JUDGED = 3  # seconds: HDF5's library hangs on some damaged files
_DTYPES = ("<f4", "<f4", "<f2", "<f8", "<i4", "|i1", ">f4", "?", "V2")


def _write(rng: Random, odd: float) -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w", libver="latest" if rng.random() < 0.15 else None) as file:
        for index in range(rng.randrange(1, 5)):
            group = file.create_group(f"layers/dense_{index}/vars")
            group.attrs["name"] = (
                f"dense_{index}"
                if rng.random() > odd
                else name(rng)[:50].encode("utf-8", "replace").replace(b"\0", b"?")
            )
            for number in range(rng.randrange(1, 3)):
                _dataset(rng, group, str(number))
        if rng.random() < odd:
            file["again"] = file["layers"]
            file["layers/up"] = file["/"]
        if rng.random() < odd:
            file["soft"] = h5py.SoftLink("/layers")
        if rng.random() < odd / 4:
            file["out"] = h5py.ExternalLink("other.h5", "/")
    return out.getvalue()


def _dataset(rng: Random, group: h5py.Group, title: str) -> None:
    shape = tuple(rng.randrange(1, 9) for _ in range(rng.randrange(4)))
    size = int(np.prod(shape, dtype=int))
    dtype = np.dtype(rng.choice(_DTYPES))
    values = np.frombuffer(rng.randbytes(size * dtype.itemsize), dtype).reshape(shape)
    if dtype.kind == "b":
        values = values.view("u1") % 2 == 1
    options = {}
    if shape and rng.random() < 0.4:
        options["chunks"] = tuple(rng.randrange(1, n + 1) for n in shape)
        options["compression"] = rng.choice((None, "gzip", "gzip", "lzf"))
        options["shuffle"], options["fletcher32"] = rng.random() < 0.5, rng.random() < 0.3
    made = group.create_dataset(title, data=values, **options)
    if dtype.kind == "V":
        made.attrs["dtype"] = "bfloat16"


def _lied(rng: Random, data: bytes) -> bytes:
    """One number near a signature of the structure is another one."""
    marks = [b"TREE", b"SNOD", b"HEAP", b"GCOL", b"OHDR", b"\x89HDF", b"\1\0\x10\0", b"\3\1", b"\3\2"]
    found = [at for mark in marks for at in _places(data, mark)]
    at = rng.choice(found) + rng.randrange(48)
    width = rng.choice((1, 2, 4, 8))
    old = int.from_bytes(data[at : at + width], "little")
    value = integer(rng, old, 0) % 256**width
    return data[:at] + value.to_bytes(width, "little") + data[at + width :]


def _places(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0 and len(found) < 50:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def _mutant(rng: Random) -> Mutant:
    odd = rng.choice((0.05, 0.3))
    data = _write(rng, odd)
    for _ in range(rng.randrange(4)):
        data = _lied(rng, data) if rng.random() < 0.6 else damaged(rng, data)
    if rng.random() < 0.8:
        return Mutant({"step_1.h5": data})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        file.writestr("config.json", '{"config": {"name": "dense_1"}, "class_name": "Embedding"}')
        file.writestr("model.weights.h5", data)
    return Mutant({"step_1.keras": out.getvalue()})


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Compare with h5py, in a child: the library may hang or crash on what it is given."""
    data = mutant.files.get("step_1.h5")
    if answer is None or data is None:
        raise Undecided
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(_JUDGED)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = _compared(data, answer)
        except BaseException:
            said = "?"
        os.write(writer, said.encode("utf-8", "replace")[:2000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if status or said == "?":
        raise Undecided
    return said or None


def _compared(data: bytes, answer: Answer) -> str:
    """A sentence if h5py reads other shapes or bytes than we do; both know a tensor by its values."""
    right = set()
    with h5py.File(io.BytesIO(data), "r") as file:

        def visit(_: str, item: object) -> None:
            if isinstance(item, h5py.Dataset) and item.size is not None and item.size < 1 << 22:
                values = item[()]
                right.add((values.shape, values.tobytes()))

        file.visititems(visit)
    for title, values in answer.tensors.items():
        if values.data and (values.shape, values.data) not in right:
            return f"{title[:80]!r} is {values!r:.200}, which h5py does not read"
    return ""


HDF5 = Grammar("hdf5", _mutant, read_folder, _judge)
