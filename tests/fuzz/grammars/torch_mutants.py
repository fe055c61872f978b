"""PyTorch's archives and legacy files, judged by torch.load."""

import io
import pickletools
import struct
import zipfile
from pathlib import Path
from random import Random

import torch

from ...checkpoints.hostile.pickles import (
    DICT,
    LIST,
    MARK,
    REDUCE,
    SETITEMS,
    TUPLE,
    archive,
    entries,
    get,
    integer,
    named,
    put,
    storage,
    tensor,
    text,
)
from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import damaged, name
from ..mutations import integer as strange

_KINDS = {
    "FloatStorage": 4,
    "DoubleStorage": 8,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "LongStorage": 8,
    "ByteStorage": 1,
    "BoolStorage": 1,
    "ComplexFloatStorage": 8,
    "NoStorage": 4,
}
_KEYS = (
    "model",
    "state_dict",
    "module",
    "optimizer",
    "ema",
    "step",
    "w",
    "layer.0.w",
    "b",
    "_metadata",
    "epoch",
)


def odd_number(rng: Random, near: int, strangeness: float) -> int:
    return strange(rng, near) if rng.random() < strangeness else near


def _tensor(rng: Random, odd: float) -> bytes:
    shape = [odd_number(rng, rng.randrange(1, 4), odd) for _ in range(rng.randrange(4))]
    if rng.random() < odd / 4:
        shape = [1] * rng.choice((63, 64, 65, 300))
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, odd_number(rng, step, odd))
        step = step * size if abs(step * size) < 2**70 else 1
    if rng.random() < 0.2:
        rng.shuffle(strides)
    held = storage(
        rng.choice("012"),
        odd_number(rng, 32, odd),
        rng.choice(list(_KINDS)) if rng.random() < 0.4 else "FloatStorage",
    )
    found = tensor(shape, strides, odd_number(rng, rng.randrange(3), odd), held)
    if rng.random() < 0.15:
        return named("torch._utils", "_rebuild_parameter") + MARK + found + b"\x89" + DICT + TUPLE + REDUCE
    return found


def _value(rng: Random, odd: float, depth: int, memo: list[int]) -> bytes:
    kind = rng.randrange(12)
    if memo and kind == 0:
        return get(rng.choice(memo)) if rng.random() > odd / 8 else get(rng.randrange(99))
    if kind < 6 or depth > 4:
        made = _tensor(rng, odd)
    elif kind < 9:
        pairs = [
            (text(rng.choice(_KEYS) if rng.random() > odd else name(rng)), _value(rng, odd, depth + 1, memo))
            for _ in range(rng.randrange(1, 4))
        ]
        made = (named("collections", "OrderedDict") + b")" + REDUCE if rng.random() < 0.4 else DICT) + MARK
        made += b"".join(key + value for key, value in pairs) + SETITEMS
    elif kind == 9:
        made = (
            LIST + MARK + b"".join(_value(rng, odd, depth + 1, memo) for _ in range(rng.randrange(3))) + b"e"
        )
    elif kind == 10:
        made = rng.choice(
            (
                integer(strange(rng)),
                b"N",
                b"\x88",
                b"G" + struct.pack(">d", 1.5),
                text(name(rng)),
                named("argparse", "Namespace") + b")" + b"\x81",
                b"}" * 2 + b"0",
            )
        )
    else:
        made = MARK + b"".join(_value(rng, odd, depth + 1, memo) for _ in range(rng.randrange(3))) + TUPLE
    if rng.random() < 0.3:
        memo.append(len(memo))
        made += put(memo[-1])
    return made


def _body(rng: Random, odd: float) -> bytes:
    memo: list[int] = []
    pairs = [(text(key), _value(rng, odd, 0, memo)) for key in rng.sample(_KEYS, rng.randrange(1, 5))]
    if rng.random() < odd / 4:  # a structure that is shared at every level
        shared = LIST + put(900)
        for level in range(rng.choice((3, 20, 40))):
            shared += MARK + get(900 + level) + get(900 + level) + TUPLE + put(901 + level)
        pairs.append((text("w"), shared))
    return entries(*pairs)


def _storages(rng: Random, odd: float) -> dict[str, bytes]:
    return {
        key: rng.randbytes(256 if rng.random() > odd / 2 else rng.choice((0, 8, 100, 128, 300)))
        for key in "012"
        if rng.random() > odd / 10
    }


def _zip(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.05, 0.3))
    data = _with_version(archive(_body(rng, odd), _storages(rng, odd)))
    if rng.random() < odd:
        data = _rezipped(rng, data)
    return Mutant({"step_1.pt": damaged(rng, data, rng.randrange(1, 4)) if rng.random() < odd else data})


def _with_version(data: bytes) -> bytes:
    """torch.load, which judges, does not open an archive without a version."""
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as target:
        target.writestr("m/version", b"3\n")
    return out.getvalue()


def _rezipped(rng: Random, data: bytes) -> bytes:
    """The same members: compressed, twice, in another folder, with a byte order."""
    import warnings

    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(out, "w") as target,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        for member in source.namelist():
            how = rng.randrange(12)
            compression = zipfile.ZIP_DEFLATED if how == 0 else zipfile.ZIP_STORED
            title = member.replace("m/", rng.choice(("../", "/", "n/", ""))) if how == 1 else member
            for _ in range(2 if how == 2 else 1):
                target.writestr(title, source.read(member) if how != 3 else rng.randbytes(64), compression)
        if rng.random() < 0.3:
            target.writestr("m/byteorder", rng.choice((b"little", b"big", b"", b"x" * 99)))
    return out.getvalue()


def _legacy(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.05, 0.3))
    buffer = io.BytesIO()
    base = torch.frombuffer(
        bytearray(rng.randbytes(96)), dtype=rng.choice((torch.float32, torch.float16, torch.int64))
    )
    state = {"w": base.reshape(-1, 2), "t": base.reshape(-1, 2).T, "tied": base, "part": base[1:3]}
    torch.save({"model": state, "step": 3}, buffer, _use_new_zipfile_serialization=False)
    data = buffer.getvalue()
    if odd and rng.random() < 0.6:
        data = _one_operation(rng, data)
    return Mutant(
        {"step_1.pt": damaged(rng, data, rng.randrange(1, 4)) if rng.random() < odd else data}, sound=not odd
    )


def _one_operation(rng: Random, data: bytes) -> bytes:
    """One operation of one of its pickles is left out, repeated, or has another number."""
    places, start = [], 0
    for _ in range(5):
        found = list(pickletools.genops(data[start:]))
        ends = [position for _, _, position in found[1:]] + [found[-1][2] + 1]
        places += [
            (start + position, start + end, op.name, argument)
            for (op, argument, position), end in zip(found, ends, strict=True)
        ]
        start += ends[-1]
    begin, end, kind, argument = rng.choice(places)
    how = rng.randrange(4)
    if isinstance(argument, int) and kind in ("BININT", "BININT1", "BININT2", "LONG1") and how:
        return data[:begin] + integer(strange(rng, argument)) + data[end:]
    if how == 1:
        return data[:begin] + data[end:]
    other = rng.choice(places)
    return data[:begin] + data[other[0] : other[1]] + (b"" if how == 2 else data[begin:end]) + data[end:]


def _flat(value: object, path: str, found: dict[str, list[torch.Tensor]], seen: int = 0) -> None:
    if isinstance(value, torch.Tensor):
        found.setdefault(path, []).append(value)
    elif isinstance(value, dict) and seen < 9:
        for key, inner in value.items():
            _flat(inner, f"{path}.{key}", found, seen + 1)
    elif isinstance(value, list | tuple) and seen < 9:
        for place, inner in enumerate(value):
            _flat(inner, f"{path}.{place}", found, seen + 1)


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    if answer is None:
        raise Undecided
    try:
        loaded = torch.load(folder / "step_1.pt", map_location="cpu", weights_only=True)
    except Exception:
        raise Undecided from None  # it allows few classes, and checks other things
    found: dict[str, list[torch.Tensor]] = {}
    _flat(loaded, "", found)
    for one, values in answer.tensors.items():
        known = [
            tensor
            for path, tensors in found.items()
            if one == "tensor" or path.endswith(f".{one}")
            for tensor in tensors
        ]
        if not any(_same(tensor, values) for tensor in known):
            return f"{one[:80]!r} is {values!r:.200}, expected one of {known!r:.300}"
    return None


def _same(tensor: torch.Tensor, values: Values) -> bool:
    if tuple(tensor.shape) != values.shape or str(tensor.dtype) != f"torch.{values.dtype}":
        return False
    flat = tensor.detach().contiguous().reshape(-1)
    return not values.data or bytes(flat.view(torch.uint8).numpy()) == values.data


ZIP = Grammar("torch zip", _zip, read_folder, _judge)
LEGACY = Grammar("torch legacy", _legacy, read_folder, _judge)
