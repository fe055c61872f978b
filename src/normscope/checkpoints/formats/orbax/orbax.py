"""Orbax and T5X checkpoints: folders of zarr arrays, or an OCDBT store of them, read through tensorstore.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html. Arrays are found
by their own metadata (`.zarray`, `zarr.json`), so it does not matter which library wrote them. T5X, and
Orbax before OCDBT, put small arrays into a msgpack file beside the folders, `checkpoint`, which also lists
the others.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from normscope.checkpoints.base import Checkpoint, Folder, Tensor
from normscope.checkpoints.extents import Extras, TableCheckpoint, read_step
from normscope.checkpoints.formats.flax.flax_files import arrays_of_model, is_flax, stored_step
from normscope.checkpoints.formats.flax.stored_arrays import (
    EntryPath,
    Leaf,
    Reference,
    StoredArray,
    read_leaves,
)
from normscope.checkpoints.formats.flax.trees import FlaxModel, find_flax_model, step_paths
from normscope.checkpoints.formats.model_entries import no_parameters
from normscope.checkpoints.formats.orbax.ocdbt_tree import MANIFEST
from normscope.checkpoints.formats.orbax.zarr_arrays import ZarrArray, chunks_in_each, parse_metadata
from normscope.checkpoints.formats.orbax.zarr_folder import METADATA, ZarrFolder
from normscope.checkpoints.limits import limits
from normscope.errors import CorruptCheckpoint, NormscopeError

_SUBFOLDERS_CHECKED = 3
_CHUNK = 4  # bytes that a chunk takes at least, if it is stored
AGGREGATE = "checkpoint"
"""The msgpack file that T5X and early Orbax write into the folder; TensorFlow's file of this name is text."""


def is_orbax(folder: Folder) -> bool:
    """Whether the folder is an OCDBT store, has T5X's msgpack file, or begins with folders of zarr arrays."""
    names = folder.names()
    if MANIFEST in names or (AGGREGATE in names and is_flax(folder.file(AGGREGATE))):
        return True
    below = [name for name in names if name.endswith("/") and not name.startswith((".", "_", "ocdbt."))]
    return any(
        not METADATA.keys().isdisjoint(folder.folder(name).names()) for name in below[:_SUBFOLDERS_CHECKED]
    )


def open_orbax(folder: Folder) -> Checkpoint:
    """Open the parameters of a folder; each array is opened when it is first read."""
    store = ZarrFolder(folder)
    try:
        return _open(store)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        store.close()
        raise CorruptCheckpoint(f"{folder.name} has damaged metadata ({str(error)[:100]}).") from None
    except NormscopeError:
        store.close()
        raise


def _open(store: ZarrFolder) -> Checkpoint:
    described = store.descriptions()
    found = {name: _array(store, name, _parse(data)) for name, data in described.items()}
    most = limits().parts + store.size // _CHUNK
    if sum(array.parts for array in found.values()) > most:
        raise ValueError(f"too many chunks (limit {most:,})")
    leaves = _aggregated(store)
    arrays: dict[EntryPath, ZarrArray] = {_path(name): array for name, array in found.items()}
    if len(arrays) < len(found):
        raise ValueError("two arrays of one name")
    if twice := arrays.keys() & {path for path, leaf in leaves.items() if isinstance(leaf, StoredArray)}:
        raise ValueError(f"the array {'.'.join(min(twice))[:80]!r} twice")
    listed = [path for path, leaf in leaves.items() if leaf is not None and path not in arrays]
    model = find_flax_model([*arrays, *listed])
    _check_references(store, model, found.keys() | {".".join(path) for path in arrays}, leaves)
    small, unread = arrays_of_model(model, leaves)
    large = {name: arrays[path] for path, name in model.names.items() if path in arrays}
    tensors = {name: Tensor(name, array.shape, array.dtype, name) for name, array in large.items()}
    tensors |= {name: array.tensor(name) for name, array in small.items()}
    model = model.without_untrained(tensors)
    tensors = {name: tensor for name, tensor in tensors.items() if name not in model.skipped}
    skipped = {**model.skipped, **unread}
    if not tensors:
        raise no_parameters(store.name, skipped)
    extents = {name: large[name] if name in large else small[name].extent for name in tensors}
    extras = Extras(skipped, _step(arrays, leaves), model.notes, networks=model.networks)
    return TableCheckpoint("orbax", [store], tensors, extents, extras)


def _array(store: ZarrFolder, name: str, metadata: Mapping[str, Any]) -> ZarrArray:
    shape, chunks, dtype = parse_metadata(metadata)
    return ZarrArray(store, name, shape, chunks, dtype, chunks_in_each(metadata, chunks))


def _path(name: str) -> EntryPath:
    """The path of an array in the tree; T5X's folders leave out that the model is in the optimizer."""
    return tuple(name.replace("/", ".").split("."))


def _aggregated(store: ZarrFolder) -> dict[EntryPath, Leaf]:
    """The leaves of the msgpack file in the folder, without the key around them that T5X adds."""
    file = store.beside(AGGREGATE)
    if file is None or file.size == 0 or file.peek(0, 1)[0] < 0x80:
        return {}  # TensorFlow's file of this name is text
    leaves = read_leaves(file)
    return {
        path[1:] if path[0] == "optimizer" and len(path) > 1 else path: leaf for path, leaf in leaves.items()
    }


def _check_references(
    store: ZarrFolder, model: FlaxModel, found: Collection[str], leaves: Mapping[EntryPath, Leaf]
) -> None:
    """Refuse a model of which arrays are missing that the msgpack file lists."""
    wanted = {path: leaf for path in model.names if isinstance(leaf := leaves.get(path), Reference)}
    missing = [
        model.names[path]
        for path, leaf in wanted.items()
        if ".".join(path) not in found and leaf.name.rpartition("/")[2] not in found
    ]
    if missing:
        raise CorruptCheckpoint(
            f"{store.name} lacks {len(missing)} arrays that its file {AGGREGATE!r} refers to, "
            f"for example {missing[0][:200]!r}. Copy their folders too."
        )


def _step(arrays: Mapping[EntryPath, ZarrArray], leaves: Mapping[EntryPath, Leaf]) -> int | None:
    counters = [array for path in step_paths(arrays) if (array := arrays[path]).is_counter]
    return read_step(counters[0], counters[0].nbytes) if counters else stored_step(leaves)


def _parse(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("metadata is not a JSON object")
    return value
