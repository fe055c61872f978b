"""Quantised models whose parts lie: shapes, dtypes, names and descriptions that no longer fit together."""

import json
import math
from pathlib import Path
from random import Random

import numpy as np

from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided
from ..mutations import as_pairs, damaged, json_bytes, mutated_json

_FIXTURES = Path(__file__).parents[2] / "checkpoints" / "fixtures" / "quantised"
_SAME_WIDTH = (
    ("U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ"), ("F16", "BF16", "I16"),
    ("F32", "I32", "U32"), ("F64", "I64", "C64"),
)  # fmt: skip
_WIDTHS = {dtype: 1 << i for i, several in enumerate(_SAME_WIDTH) for dtype in several}
_ENDS = (
    "_scale",
    "_scale_inv",
    "_zero_point",
    ".SCB",
    ".qzeros",
    "_shape",
    "_g_idx",
    ".absmax",
    "_packed",
    "_blocks",
)
Parts = dict[str, tuple[str, list[int], bytes]]


def parts_of(data: bytes) -> tuple[Parts, dict[str, str]]:
    """The tensors of a sound file, and its metadata."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    inside = data[8 + length :]
    found = {}
    for name, info in header.items():
        start, stop = info["data_offsets"]
        found[name] = (info["dtype"], info["shape"], inside[start:stop])
    return found, metadata


def joined(parts: Parts, metadata: dict[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, raw) in parts.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(raw for _, _, raw in parts.values())


def _reshaped(rng: Random, count: int) -> list[int]:
    """Some shape of as many elements."""
    shape = []
    for _ in range(rng.randrange(4)):
        divisors = [n for n in (1, 2, 3, 4, 8, 16, 32, 64) if count % n == 0]
        shape.append(rng.choice(divisors))
        count //= shape[-1]
    shape.insert(rng.randrange(len(shape) + 1), count)
    return shape


def _changed(rng: Random, parts: Parts, name: str) -> None:
    """One lie about one part."""
    dtype, shape, raw = parts[name]
    kind = rng.randrange(8)
    if kind == 0:
        del parts[name]
    elif kind == 1:
        parts[name] = (rng.choice(next(s for s in _SAME_WIDTH if dtype in s)), shape, raw)
    elif kind == 2:
        parts[name] = (dtype, _reshaped(rng, math.prod(shape)), raw)
    elif kind == 3 and shape:
        rows = rng.choice((0, 1, shape[0] // 2, max(0, shape[0] - 1), shape[0] + 1, 2 * shape[0]))
        size = _WIDTHS[dtype] * rows * math.prod(shape[1:])
        parts[name] = (dtype, [rows, *shape[1:]], (raw + rng.randbytes(max(0, size - len(raw))))[:size])
    elif kind == 4:
        parts[name] = (dtype, shape, damaged(rng, raw, 1)[: len(raw)].ljust(len(raw), b"\xff"))
    elif kind == 5:
        parts[name] = (dtype, shape, rng.choice((b"\xff", b"\0", b"\x80")) * len(raw))
    elif kind == 6:
        parts[rng.choice((name + rng.choice(_ENDS), name.rpartition(".")[0] + rng.choice(_ENDS)))] = (
            parts.pop(name)
        )
    elif "quant_state" in name:
        described = json_bytes(mutated_json(rng, as_pairs(_loaded(raw))), rng)
        parts[name] = ("U8", [len(described)], described)


def _loaded(raw: bytes) -> object:
    """The description, unless an earlier lie spoiled it."""
    try:
        return json.loads(raw)
    except ValueError:
        return {}


def _make(rng: Random) -> Mutant:
    cases = sorted(path.name for path in _FIXTURES.iterdir() if (path / "model.safetensors").exists())
    case, sound = rng.choice(cases), rng.random() < 0.05
    content = (_FIXTURES / case / "model.safetensors").read_bytes()
    parts, metadata = parts_of(content)
    for _ in range(0 if sound else rng.randrange(1, 4)):
        if parts:
            _changed(rng, parts, rng.choice(list(parts)))
    if metadata and not sound and rng.random() < 0.5:
        key = rng.choice(list(metadata))
        described = mutated_json(rng, as_pairs(json.loads(metadata[key])))
        metadata[key] = json_bytes(described, rng).decode("utf-8", "replace")
    files = {"step_1/model.safetensors": joined(parts, metadata)}
    config = _FIXTURES / case / "config.json"
    if config.exists() and (sound or rng.random() < 0.8):
        settings = as_pairs(json.loads(config.read_bytes()))
        files["step_1/config.json"] = json_bytes(
            settings if sound or rng.random() < 0.7 else mutated_json(rng, settings), rng
        )
    if sound:
        files["of.txt"] = case.encode()
    return Mutant(files, sound=sound)


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Sound models have the values of the library; of the others only time, memory and errors are judged."""
    if not mutant.sound or answer is None:
        raise Undecided
    with np.load(_FIXTURES / mutant.files["of.txt"].decode() / "whole.npz") as expected:
        if answer.tensors.keys() != set(expected):
            return f"tensors {sorted(answer.tensors)[:5]!r}, expected {sorted(expected)[:5]!r}"
        for name in expected:
            values = np.frombuffer(answer.tensors[name].data, np.float32)
            if not np.allclose(values, expected[name].ravel(), rtol=3e-7, atol=1e-9):
                return f"{name!r} has other values than the library restores"
    return None


QUANTISED = Grammar("quantised", _make, read_folder, _judge)
