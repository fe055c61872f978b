"""npz, GGUF and llama2.c: headers that lie about shapes, orders, places and counts."""

import io
import struct
import zipfile
from pathlib import Path
from random import Random

import gguf
import numpy as np

from ...checkpoints.hostile.gguf_files import gguf as gguf_bytes
from ...checkpoints.hostile.gguf_files import info, string
from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import damaged, integer, name

_NPY = (
    "<f4",
    "<f8",
    "<f2",
    ">f4",
    "<i8",
    "|b1",
    "<c8",
    "|O",
    "<U4",
    "|V4",
    "<f16",
    "f4",
    "<M8[s]",
    "|S0",
    "<i4, <f4",
)


def _npy(rng: Random, odd: float) -> bytes:
    shape = tuple(rng.randrange(1, 4) for _ in range(rng.randrange(4)))
    dtype = "<f4" if rng.random() < 0.6 else rng.choice(_NPY)
    size = int(np.prod(shape, dtype=int)) * int("".join(c for c in dtype[2:4] if c.isdigit()) or 4)
    described = repr(tuple(integer(rng, n) for n in shape) if rng.random() < odd else shape)
    if rng.random() < odd / 4:
        described = rng.choice(
            ("(" * 300, "()" * 3, "(4,)*9", "(-1,)", "(True,)", "(1.0,)", "4", "[4]", "None", "(4", "(1,)*10")
        )
    order = (
        rng.choice(("True", "False"))
        if rng.random() > odd / 4
        else rng.choice(("1", "None", "'x'", "True or 1"))
    )
    text = f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {described}, }}"
    if rng.random() < odd / 4:
        text = text.replace("}", ", 'more': 1}") if rng.random() < 0.5 else text * 2
    version = rng.choice(((1, 0), (2, 0), (3, 0))) if rng.random() > odd / 4 else (9, 9)
    width = 2 if version == (1, 0) else 4
    text += " " * (-(len(text) + 7 + width) % 16) + "\n"
    length = len(text) if rng.random() > odd / 4 else integer(rng, len(text), 0)
    head = b"\x93NUMPY" + bytes(version) + (length % 256**width).to_bytes(width, "little")
    return head + text.encode() + rng.randbytes(size)


def _npz(rng: Random) -> Mutant:
    odd = rng.choice((0.05, 0.3))
    out = io.BytesIO()
    titles = {"w.npy", "layer.0.b.npy", "n.npy"} if rng.random() > odd else {f"{name(rng)}.npy", "w", "w.npy"}
    with zipfile.ZipFile(out, "w") as target:
        for title in sorted(titles):
            data = _npy(rng, odd)
            if rng.random() < 0.01:
                data = data[:64] + bytes(rng.choice((10**6, 3 * 10**7)))  # far more than its header says
            try:
                target.writestr(title or "x", data, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
            except (UnicodeError, ValueError):
                continue
    data = out.getvalue()
    if rng.random() < odd:
        data = _lied(rng, data) if rng.random() < 0.6 else damaged(rng, data, rng.randrange(1, 4))
    return Mutant({"step_1.npz": data})


def _lied(rng: Random, data: bytes) -> bytes:
    """One number in the directory of an archive is another one: a size, a place, a count."""
    changed = bytearray(data)
    start = rng.choice(
        [i for i in range(len(data) - 4) if data[i : i + 4] in (b"PK\1\2", b"PK\3\4", b"PK\5\6")]
    )
    at, width = rng.choice(
        {
            1: ((20, 4), (24, 4), (42, 4), (10, 2), (28, 2), (16, 4)),
            3: ((18, 4), (22, 4), (26, 2), (8, 2)),
            5: ((8, 2), (10, 2), (12, 4), (16, 4)),
        }[data[start + 2]]
    )
    old = int.from_bytes(data[start + at : start + at + width], "little")
    changed[start + at : start + at + width] = (integer(rng, old) % 256**width).to_bytes(width, "little")
    return bytes(changed)


def _judge_npz(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    if answer is None:
        raise Undecided
    with np.load(folder / "step_1.npz", allow_pickle=False, max_header_size=10**6) as loaded:
        for one, values in answer.tensors.items():
            try:
                right = loaded[one]
            except (zipfile.BadZipFile, UnicodeError) as error:
                if "CRC" in str(error):  # documented: checksums of data are not verified
                    continue
                raise
            if right.shape != values.shape or (values.data and right.tobytes() != values.data):
                return f"{one[:80]!r} is {values!r:.200}, expected {right!r:.200}"
    return None


def _gguf(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.1, 0.3))
    infos, data, truth = [], b"", {}
    for one in ("blk.0.w", "blk.1.w", "n"):
        kind, width = rng.choice(((0, 4), (1, 2), (28, 8), (30, 2), (8, 34)))
        shape = [32 if width == 34 else rng.randrange(1, 5), rng.randrange(1, 4)]
        size = shape[1] * width if width == 34 else shape[0] * shape[1] * width
        content = rng.randbytes(size)
        offset, said, axes = len(data), list(shape), None
        if rng.random() < odd:
            offset = integer(rng, offset, 0) % 2**64
        if rng.random() < odd:
            said[rng.randrange(2)] = integer(rng, shape[0], 0) % 2**64
        if rng.random() < odd / 4:
            axes = integer(rng, 2, 0) % 2**32
        if rng.random() < odd / 2:
            kind = rng.choice((*range(40), 2**31))
        title = one if rng.random() > odd / 3 else rng.choice((name(rng), "n"))
        infos.append(info(title.encode("utf-8", "surrogatepass"), said, kind, offset, axes))
        data += content + bytes(-len(content) % 32)
        truth[title] = None
    pairs = []
    for _ in range(rng.randrange(3)):
        kind = rng.choice((0, 4, 6, 7, 8, 9, 10)) if rng.random() > odd / 4 else rng.randrange(20)
        body = {8: string(b"text"), 9: struct.pack("<IQ", 4, 2) + bytes(8)}.get(
            kind, bytes({0: 1, 7: 1, 10: 8}.get(kind, 4))
        )
        if kind in (8, 9) and rng.random() < odd:
            body = struct.pack("<Q", integer(rng, 4, 0) % 2**64) + body[8:]
        pairs.append(string(b"a.%d" % len(pairs)) + struct.pack("<I", kind) + body)
    if rng.random() < odd:
        pairs.append(
            string(b"general.alignment") + struct.pack("<II", 4, rng.choice((0, 1, 8, 16, 31, 64, 2**31)))
        )
    count = integer(rng, 3, 0) % 2**64 if rng.random() < odd / 4 else None
    content = gguf_bytes(
        infos, pairs, data, count, integer(rng, 2, 0) % 2**64 if rng.random() < odd / 4 else None
    )
    if rng.random() < odd:
        content = damaged(rng, content, rng.randrange(1, 4))
    return Mutant({"step_1.gguf": content}, sound=not odd)


def _judge_gguf(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    if answer is None:
        raise Undecided
    try:
        found = {tensor.name: tensor for tensor in gguf.GGUFReader(folder / "step_1.gguf").tensors}
    except Exception:
        raise Undecided from None  # it refuses repeated keys and unknown versions, in its own ways
    for one, values in answer.tensors.items():
        if one not in found:
            if "\ufffd" in one:
                continue
            return f"{one[:80]!r} is not in the file"
        tensor = found[one]
        shape = tuple(int(n) for n in reversed(tensor.shape))
        if values.shape != shape:
            return f"{one[:80]!r} has the shape {values.shape}, expected {shape}"
        raw = bytes(np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8))
        quantised = tensor.tensor_type.name not in ("F32", "F16", "F64", "BF16")
        if not values.data or (quantised and values.dtype == "float32"):
            continue
        if raw != values.data:
            return f"{one[:80]!r} is {values!r:.200}, expected {raw!r:.200}"
    return None


def _llama(rng: Random) -> Mutant:
    dim, hidden, layers, heads, kv, vocab, seq = 8, 4, rng.randrange(1, 3), 4, 2, 5, 3
    shared = rng.random() < 0.5
    count = vocab * dim + layers * (2 * dim + 2 * dim * dim + 2 * 4 * dim + 3 * hidden * dim) + dim + 2 * seq
    count += 0 if shared else vocab * dim
    numbers = [dim, hidden, layers, heads, kv, vocab if shared else -vocab, seq]
    odd = rng.choice((0.0, 0.3))
    version = rng.choice((0, 0, 1, 2))
    if rng.random() < odd:
        place = rng.randrange(7)
        numbers[place] = (integer(rng, numbers[place], -9) + 2**31) % 2**32 - 2**31
    body = rng.randbytes(4 * count)
    head = struct.pack("<7i", *numbers)
    if version:
        said = version if rng.random() > odd else rng.randrange(5)
        head = (
            struct.pack("<II", 0x616B3432, said)
            + head
            + bytes([shared])
            + struct.pack("<i", integer(rng, 8) % 2**31)
        )
        head = head.ljust(256, b"\0")
        body = body[: -8 * seq]
        if version == 2:
            body = rng.randbytes(rng.choice((count + count // 2, 4 * count)))
    if rng.random() < odd:
        body = body[: rng.randrange(len(body))] if rng.random() < 0.3 else body + bytes(rng.randrange(64))
    content = head + body
    truth = None
    if not odd and version == 0:
        truth = {
            "tok_embeddings.weight": Values((vocab, dim), body[: 4 * vocab * dim], "float32"),
            "norm.weight": Values(
                (dim,), body[-4 * (dim + 2 * seq + (0 if shared else vocab * dim)) :][: 4 * dim]
            ),
        }
    return Mutant(
        {"step_1.bin": content if rng.random() > odd else damaged(rng, content, 2)},
        truth,
        sound=truth is not None,
    )


def _judge_llama(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Embedding and last norm are where the format says; together the tensors are all of the file."""
    if answer is None or mutant.truth is None:
        raise Undecided
    for one, right in mutant.truth.items():
        if (answer.tensors[one].shape, answer.tensors[one].data) != (right.shape, right.data):
            return f"{one} is {answer.tensors[one]!r:.200}, expected {right!r:.200}"
    return None


NPZ = Grammar("npz", _npz, read_folder, _judge_npz)
GGUF = Grammar("gguf", _gguf, read_folder, _judge_gguf)
LLAMA = Grammar("llama2.c", _llama, read_folder, _judge_llama)
