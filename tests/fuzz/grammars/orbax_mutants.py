"""Orbax: folders and OCDBT stores of zarr arrays, whose trees, chunks and metadata lie.

What was not changed must have the values that were written; the rest, what tensorstore reads as a whole.
"""

from pathlib import Path
from random import Random

import numpy as np

from ...checkpoints.hostile.msgpack_files import packed
from ..checkpoints_read import KEPT, read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import as_pairs, damaged, json_bytes, mutated_json, name
from .ocdbt_bombs import bomb_of_nodes
from .ocdbt_stores import Lies, Store
from .zarr_chunks import MEASURED, Array

_NAMES = ("layers_0.kernel", "layers_0.bias", "layers_1.attention.query.kernel", "embed.table", "w")


def _arrays(rng: Random, lies: Lies, third: bool) -> dict[str, Array]:
    found = {}
    for word in rng.sample(_NAMES, rng.randrange(1, 4)):
        title = f"params.{word}"
        if lies.often(0.1):
            title = name(rng).replace("/", "|").replace("\0", "0")[:60].strip(".") or "x"
            title = rng.choice((title, title, f"params/{word}", "params.layers_0/kernel"))
        found[title] = Array(lies, third)
        found[title].write()
    return found


def _beside(rng: Random, lies: Lies, arrays: dict[str, Array]) -> dict[str, bytes]:
    """What Orbax writes beside the arrays: descriptions of the tree, and a file of small arrays."""
    tree = {str(tuple(key.split("."))): {"value_metadata": {"value_type": "jax.Array"}} for key in arrays}
    described = as_pairs(
        {"tree_metadata": tree, "use_zarr3": False, "store_array_data_equal_to_fill_value": True}
    )
    if lies.often(0.5):
        described = mutated_json(rng, described)
    files = {"_METADATA": json_bytes(described, rng), "_CHECKPOINT_METADATA": b'{"item_handlers": "x"}'}
    if rng.random() < 0.1:
        listed = {key.split(".")[-1]: f"PLACEHOLDER://{key}" for key in arrays}
        files["checkpoint"] = packed({"params": listed}) if lies.often(1) else b'model_checkpoint_path: "x"'
    if lies.often(0.1):
        one = rng.choice(list(files))
        files[one] = damaged(rng, files[one])
    return files


def _store(rng: Random, lies: Lies, arrays: dict[str, Array]) -> dict[str, bytes]:
    """All arrays in one store."""
    pairs = [(f"{key}/{part}".encode("utf-8", "replace"), data)
             for key, array in arrays.items() for part, data in array.files.items()]  # fmt: skip
    if lies.often(0.1):
        again = [(b"params.y\xff/.zarray", pairs[0][1]), (b"params.y\xfe/.zarray", pairs[0][1])]
        pairs += rng.choice((again, again[:1], [(pairs[0][0], b"{}")], [(b"", b"x")]))
    pairs = sorted(pairs, key=lambda pair: pair[0]) if not lies.often(0.1) else pairs
    path = (b"", b"d/data")
    if lies.often(0.1):
        path = rng.choice(((b"", b"../x"), (b"../", b"d/data"), (b"/etc/", b"passwd"), (b"d/", b"data"),
                           (b"", b"manifest.ocdbt"), (b"", b"\xff"), (b"", b"")))  # fmt: skip
    store = Store(lies, path)
    first, data = store.finished(pairs, rng.choice((1, 2, 3, 100)))
    if lies.often(0.1):
        first, data = bomb_of_nodes(lies)
    return {"manifest.ocdbt": first, "d/data": data}


def _orbax(rng: Random) -> Mutant:
    lies = Lies(rng, rng.choice((0.0, 0.2, 0.5, 1.0)))
    third, stored = rng.random() < 0.3, rng.random() < 0.5
    arrays = _arrays(rng, lies, third)
    before = lies.told
    if stored:
        files = _store(rng, lies, arrays)
    else:
        files = {
            f"{key.replace('/', '|')}/{part}": data
            for key, array in arrays.items()
            for part, data in array.files.items()
        }
    broken = lies.told != before
    files |= _beside(rng, lies, arrays)
    if lies.often(0.1):
        one = rng.choice(list(files))
        files[one], broken = damaged(rng, files[one], rng.randrange(1, 3)), True
    known = {
        key.removeprefix("params."): array.values if array.exact else None for key, array in arrays.items()
    }
    kept = {f"checkpoint_1/{key}".encode("utf-8", "replace").decode(): data for key, data in files.items()}
    return Mutant(kept, None if broken else known, sound=not lies.told)


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    if answer is None or not answer.tensors:
        raise Undecided
    if mutant.sound and answer.tensors.keys() != (mutant.truth or {}).keys():
        return f"read {sorted(answer.tensors)!r:.200}, expected {sorted(mutant.truth or {})!r:.200}"
    judged, count = None, 0
    for title, values in answer.tensors.items():
        right = (mutant.truth or {}).get(title)
        if right is None:
            judged, count = (judged, count) if judged is not None else _whole(folder / "checkpoint_1")
            if not answer.skipped and len(answer.tensors) != count:
                return f"{len(answer.tensors)} arrays are read, but there are {count}"
            if values.data and values not in judged:
                return f"{title[:80]!r} is {values!r:.200}, which tensorstore does not read"
        elif values != right:
            return f"{title[:80]!r} is {values!r:.200}, expected {right!r:.200}"
    return None


def _whole(folder: Path) -> tuple[list[Values], int]:
    """Every array that tensorstore can read, in one piece; and how many there are."""
    import tensorstore

    base = {"driver": "file", "path": f"{folder}/"}
    inside = (folder / "manifest.ocdbt").exists()
    places = {"driver": "ocdbt", "base": base} if inside else base
    found, count = [], 0
    for key in tensorstore.KvStore.open(places).result().list().result():
        above, _, kind = key.decode("utf-8", "replace").rpartition("/")
        if kind not in (".zarray", "zarr.json"):
            continue
        count += inside or above.count("/") == 0
        spec = {
            "driver": "zarr" if kind == ".zarray" else "zarr3",
            "kvstore": {**places, "path": f"{above}/"},
        }
        if not inside:
            spec["kvstore"] = {**base, "path": f"{folder}/{above}/"}
        try:
            array = tensorstore.open(spec, read=True, open=True).result()
            if array.size * array.dtype.numpy_dtype.itemsize <= KEPT and array.dtype.name in MEASURED:
                data = np.ascontiguousarray(array.read().result()).tobytes()
                found.append(Values(tuple(array.shape), data, array.dtype.name))
        except (ValueError, MemoryError):
            continue
    return found, count


ORBAX = Grammar("orbax", _orbax, read_folder, _judge)
