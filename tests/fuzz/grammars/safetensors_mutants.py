"""safetensors, one file and shards with an index, judged by the reference implementation."""

import json
from pathlib import Path
from random import Random

import numpy as np
import safetensors

from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import Pairs, as_pairs, damaged, integer, json_bytes, mutated_json, name

_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "U8": 1,
           "BOOL": 1, "C64": 8, "F8_E8M0": 1, "F8_E4M3FNUZ": 1}  # fmt: skip
_FIRST = "model-00001-of-00002.safetensors"
_SECOND = "model-00002-of-00002.safetensors"


def header(rng: Random, names: list[str]) -> tuple[Pairs, bytes]:
    """A sound header and its data."""
    entries, data = Pairs(), b""
    for one in names:
        dtype = rng.choice(list(_WIDTHS)) if rng.random() < 0.6 else "F32"
        shape = [rng.randrange(1, 5) for _ in range(rng.randrange(4))]
        size = int(np.prod(shape, dtype=int)) * _WIDTHS[dtype]
        described = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        entries.append((one, as_pairs(described)))
        data += rng.randbytes(size)
    if rng.random() < 0.3:
        entries.insert(0, ("__metadata__", as_pairs({"format": "pt"})))
    return entries, data


def joined(rng: Random, entries: object, data: bytes, lying: bool) -> bytes:
    text = json_bytes(entries, rng)
    length = len(text) if not lying or rng.random() < 0.8 else integer(rng, len(text), 0) % 2**64
    return length.to_bytes(8, "little") + text + data


def _has_offsets(described: Pairs) -> bool:
    found = [value for key, value in described if key == "data_offsets"]
    return len(found) == 1 and isinstance(found[0], list) and all(type(n) is int for n in found[0])


def _overlapping(rng: Random, entries: Pairs) -> Pairs:
    """The places of one tensor given to another as well, or moved."""
    places = [i for i, (_, inner) in enumerate(entries) if isinstance(inner, Pairs) and _has_offsets(inner)]
    if not places:
        return entries
    one, other = rng.choice(places), rng.choice(places)
    copy = Pairs(entries)
    if rng.random() < 0.5:
        copy[one] = (entries[one][0], entries[other][1])
    else:
        parts = dict(entries[one][1])
        shift = rng.choice((-8, -4, -1, 1, 4, 8))
        parts["data_offsets"] = [value + shift for value in parts["data_offsets"]]
        copy[one] = (entries[one][0], Pairs(parts.items()))
    return copy


def one_file(rng: Random, names: list[str], sound: bool) -> bytes:
    entries, data = header(rng, names)
    for _ in range(0 if sound else rng.randrange(4)):
        entries = _overlapping(rng, entries) if rng.random() < 0.2 and entries else mutated_json(rng, entries)
        if not isinstance(entries, Pairs):
            break
    content = joined(rng, entries, data, not sound)
    return content if sound or rng.random() < 0.7 else damaged(rng, content, rng.randrange(1, 4))


def _make(rng: Random) -> Mutant:
    sound = rng.random() < 0.05
    names = ["layer.0.w", "b", "n"] if sound else list({name(rng) for _ in range(rng.randrange(1, 5))})
    return Mutant({"step_1.safetensors": one_file(rng, names, sound)}, sound=sound)


def reference(data: bytes) -> dict[str, Values]:
    found = safetensors.deserialize(data)
    return {one: Values(tuple(info["shape"]), bytes(info["data"])) for one, info in found}


def compared(expected: dict[str, Values], answer: Answer) -> str | None:
    if expected.keys() != answer.tensors.keys():
        return f"tensors {sorted(answer.tensors)[:5]!r}, expected {sorted(expected)[:5]!r}"
    for one, values in answer.tensors.items():
        right = expected[one]
        if values.shape != right.shape or values.data != right.data[: len(values.data)]:
            return f"{one[:80]!r} is {values!r:.200}, expected {right!r:.200}"
    return None


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    data = mutant.files["step_1.safetensors"]
    try:
        expected = reference(data)
    except safetensors.SafetensorError as error:
        if "`-0.0`" in str(error):  # it takes -0 for a float; for us it is 0
            raise Undecided from None
        raise
    if answer is None:  # ours is stricter: a name must not appear twice, and limits hold
        raise Undecided
    return compared(expected, answer)


def _make_shards(rng: Random) -> Mutant:
    sound = rng.random() < 0.05
    shards = {_FIRST: ["layer.0.w", "b"], _SECOND: ["layer.1.w", "c"]}
    listed = {one: shard for shard, names in shards.items() for one in names}
    broken = rng.choice(("index", "shard", "both", "names"))
    if broken == "names" and not sound:
        shards[_SECOND] = [rng.choice(("b", "layer.1.w", name(rng))), "c"]
    files = {
        f"step_1/{shard}": one_file(rng, names, sound or broken in ("index", "names"))
        for shard, names in shards.items()
    }
    index = as_pairs({"metadata": {"total_size": 4}, "weight_map": listed})
    for _ in range(0 if sound or broken not in ("index", "both") else rng.randrange(1, 4)):
        index = mutated_json(rng, index)
    files["step_1/model.safetensors.index.json"] = json_bytes(index, rng)
    if not sound and rng.random() < 0.1:
        del files[rng.choice(list(files))]
    return Mutant(files, sound=sound)


def _judge_shards(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    if answer is None:
        raise Undecided
    shards = {
        path.rpartition("/")[2]: data for path, data in mutant.files.items() if not path.endswith("json")
    }
    index = mutant.files.get("step_1/model.safetensors.index.json")
    if index is None:
        expected = {}
        for data in shards.values():
            expected.update(reference(data))
        return compared(expected, answer)
    listed = json.loads(index)["weight_map"]
    found = {shard: reference(shards[shard]) for shard in set(listed.values())}
    return compared({one: found[shard][one] for one, shard in listed.items()}, answer)


SAFETENSORS = Grammar("safetensors", _make, read_folder, _judge)
SHARDS = Grammar("safetensors index", _make_shards, read_folder, _judge_shards)
