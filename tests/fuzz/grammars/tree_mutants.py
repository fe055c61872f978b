"""Trees of arrays in msgpack and in pickles: shapes, chunks, keys and references that do not fit."""

import pickle
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np

from ...checkpoints.hostile.msgpack_files import chunked, extension, packed, stored
from ...checkpoints.hostile.pickled_arrays import array as pickled_array
from ...checkpoints.hostile.pickled_arrays import frozen_in_itself, jax_array, pickled, raw
from ...checkpoints.hostile.pickles import text
from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values, by_truth
from ..mutations import damaged, integer, name

_DTYPES = ("float32", "float32", "float64", "float16", "int32", "bool", "complex64")
_WORDS = (
    "layers_0",
    "attention",
    "query",
    "kernel",
    "params",
    "batch_stats",
    "value",
    "mean",
    "var",
    "rngs",
    "w",
)
Arrays = dict[tuple[str, ...], np.ndarray]


def _values(rng: Random) -> np.ndarray:
    shape = tuple(rng.randrange(1, 5) for _ in range(rng.randrange(4)))
    kind = np.dtype(rng.choice(_DTYPES))
    size = int(np.prod(shape, dtype=int)) * kind.itemsize
    data = bytes(rng.choice((0, 1)) for _ in range(size)) if kind.kind == "b" else rng.randbytes(size)
    return np.frombuffer(data, kind).reshape(shape)


def _msgpack_array(rng: Random, value: np.ndarray, odd: float) -> Any:
    shape, data, dtype = list(value.shape), value.tobytes(), value.dtype.name
    if rng.random() < odd and shape:
        shape[rng.randrange(len(shape))] = integer(rng, shape[0], 0) % 2**64
    if rng.random() < odd / 2:
        dtype = rng.choice((*_DTYPES, "object", "int4", "", "x" * 99))
    if rng.random() < 0.2 and value.size:
        flat = value.reshape(-1)
        cut = rng.randrange(len(flat) + 1)
        parts = (flat[:cut], flat[cut:])
        chunks = {str(i): stored(part.shape, dtype, part.tobytes()) for i, part in enumerate(parts)}
        if rng.random() < odd:
            chunks[rng.choice(("2", "-1", "x", "1"))] = rng.choice(list(chunks.values()))
        return chunked({str(i): size for i, size in enumerate(shape)}, chunks)
    length = None
    if rng.random() < odd / 3:
        length = integer(rng, len(data) + 20, 0) % 2**32
    return stored(
        shape, dtype, data, length, rng.choice((1, 3)) if not odd else rng.choice((1, 1, 1, 2, 3, 9))
    )


def _tree(rng: Random, odd: float, depth: int = 0) -> dict[str, Any]:
    """A tree whose leaves are NumPy arrays and plain values."""
    found: dict[str, Any] = {}
    for _ in range(rng.randrange(1, 5)):
        key = rng.choice(_WORDS) if rng.random() > odd / 2 else name(rng)
        if depth < 3 and rng.random() < 0.4:
            found[key] = _tree(rng, odd, depth + 1)
        elif rng.random() < 0.8:
            found[key] = _values(rng)
        else:
            found[key] = rng.choice((None, True, 7, 1.5, "text", integer(rng, 5, -9) % 2**63))
    return found


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Arrays:
    if isinstance(tree, dict):
        return {
            p: value for key, child in tree.items() for p, value in _leaves(child, (*path, str(key))).items()
        }
    return {path: tree} if isinstance(tree, np.ndarray) else {}


def _packed(rng: Random, tree: Any, odd: float) -> Any:
    if isinstance(tree, dict):
        inside = {key: _packed(rng, child, odd) for key, child in tree.items()}
        if rng.random() < odd / 6:
            inside["ref"] = rng.choice((
                {"driver": "zarr", "kvstore": {"path": name(rng)}}, "PLACEHOLDER://x", "//GDAPlaceholder:y",
                extension(rng.randrange(5), rng.randbytes(9)), [[[1]] * 3] * 3,
            ))  # fmt: skip
        return inside
    return _msgpack_array(rng, tree, odd / 2) if isinstance(tree, np.ndarray) else tree


def _flax(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.0, 0.1, 0.4))
    tree = {"params": _tree(rng, odd)} if rng.random() < 0.7 else _tree(rng, odd)
    data = packed(_packed(rng, tree, odd))
    if odd and rng.random() < 0.5:
        data = damaged(rng, data, rng.randrange(1, 4))
    if rng.random() < 0.3:
        return Mutant({"checkpoint_1/checkpoint": data})
    return Mutant({"step_1.msgpack": data})


def _restored(code: int, data: bytes) -> Any:
    """What Flax makes of an extension."""
    if code not in (1, 3):
        return None
    shape, dtype, buffer = msgpack.unpackb(data, raw=True)
    if dtype.decode() not in _DTYPES:
        return None  # named as skipped
    return np.frombuffer(buffer, np.dtype(dtype.decode())).reshape(shape)


def _unchunked(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "__msgpack_chunked_array__" not in tree:
        return {key: _unchunked(child) for key, child in tree.items()}
    parts = [tree["chunks"][str(i)] for i in range(len(tree["chunks"]))]
    if any(part is None for part in parts):
        return None
    return np.concatenate(parts).reshape([tree["shape"][str(i)] for i in range(len(tree["shape"]))])


def _compare(answer: Answer, arrays: Arrays) -> str | None:
    """A sentence if a tensor is not one of the arrays, by the end of its path, shape and bytes."""
    for one, values in answer.tensors.items():
        near = [value for path, value in arrays.items() if _is_name_of(one, path)]
        if not any(values.shape == v.shape and values.data in (b"", v.tobytes()) for v in near):
            return f"{one[:80]!r} is {values!r:.200}, expected one of {near!r:.200}"
    return None


def _is_name_of(one: str, path: tuple[str, ...]) -> bool:
    whole = ".".join(path)
    shorter = ".".join(path[:-1]) if path[-1] in ("value", "raw_value") else whole
    return any(each == one or each.endswith(f".{one}") for each in (whole, shorter))


def _judge_flax(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    if answer is None or not answer.tensors:
        raise Undecided  # in a folder, what is not a tree is not a checkpoint
    (data,) = mutant.files.values()
    try:
        tree = msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_restored)
    except ValueError as error:
        if "timestamp" in str(error):  # for us one more unknown extension, which is named as skipped
            raise Undecided from None
        raise
    return _compare(answer, _leaves(_unchunked(_as_maps(tree))))


def _as_maps(tree: Any) -> Any:
    if isinstance(tree, list):
        tree = {str(i): child for i, child in enumerate(tree)}
    return {key: _as_maps(child) for key, child in tree.items()} if isinstance(tree, dict) else tree


def _pickles(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.0, 0.2, 0.5))
    if rng.random() < 0.6:
        tree = {"params": _tree(rng, 0)} if rng.random() < 0.7 else _tree(rng, 0)
        data = pickle.dumps(_reordered(rng, tree), rng.choice((2, 3, 4, 5)))
        if odd:
            return Mutant({"step_1.pkl": damaged(rng, data, rng.randrange(1, 4))})
        truth = {".".join(path): Values((), b"") for path in _leaves(tree)}
        return Mutant({"step_1.pkl": data}, truth)
    pairs = [
        (text(rng.choice(_WORDS) if rng.random() > odd else name(rng)), _odd_array(rng, odd))
        for _ in range(3)
    ]
    data = pickled(*pairs, protocol=rng.choice((2, 4)))
    return Mutant({"step_1.pkl": damaged(rng, data) if rng.random() < odd else data})


def _reordered(rng: Random, tree: Any) -> Any:
    """Some arrays in the order of Fortran, and some levels as lists of one."""
    if isinstance(tree, dict):
        return {key: _reordered(rng, child) for key, child in tree.items()}
    return np.asfortranarray(tree) if isinstance(tree, np.ndarray) and rng.random() < 0.4 else tree


def _odd_array(rng: Random, odd: float) -> bytes:
    sizes = [rng.randrange(1, 4) for _ in range(rng.randrange(3))]
    count = int(np.prod(sizes, dtype=int))
    said = [integer(rng, n) if rng.random() < odd / 2 else n for n in sizes]
    code = "f4" if rng.random() > odd / 2 else rng.choice(("f8", "O8", "q9", "", "V4", "M8[s]", "f4" * 99))
    data = raw(
        rng.randbytes(4 * count), None if rng.random() > odd / 4 else integer(rng, 4 * count, 0) % 2**64
    )
    made = pickled_array(said, code, data, rng.choice((b"\x88", b"\x89")), order=rng.choice("<<<|=>"))
    if rng.random() < odd / 4:
        return rng.choice(
            (jax_array(made, made, made, made), frozen_in_itself(), made[: rng.randrange(len(made))])
        )
    return made


def _judge_pickles(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Pickles of ours are loaded again with pickle; whatever was damaged is never loaded."""
    if answer is None or mutant.truth is None:
        return by_truth(mutant, folder, answer)
    (data,) = mutant.files.values()
    return _compare(answer, _leaves(pickle.loads(data)))


FLAX = Grammar("flax", _flax, read_folder, _judge_flax)
PICKLES = Grammar("pickled arrays", _pickles, read_folder, _judge_pickles)
