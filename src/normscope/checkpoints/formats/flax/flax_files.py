"""Flax's checkpoints: one msgpack file, or Hugging Face's shards of one, each a tree of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, File, Folder, quoted
from normscope.checkpoints.extents import Extras, TableCheckpoint, read_step
from normscope.checkpoints.formats.flax.msgpack_reader import begins_as_tree
from normscope.checkpoints.formats.flax.stored_arrays import (
    EntryPath,
    Leaf,
    Reference,
    StoredArray,
    read_leaves,
)
from normscope.checkpoints.formats.flax.trees import FlaxModel, find_flax_model, step_paths
from normscope.checkpoints.formats.model_entries import no_parameters
from normscope.checkpoints.formats.safetensors import read_weight_map
from normscope.checkpoints.limits import INT64
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.words import printable, some


def is_flax(file: File) -> bool:
    """Whether the file begins like a msgpack tree with names."""
    return begins_as_tree(file)


def open_flax(file: File) -> Checkpoint:
    """Open the model in a msgpack file; its arrays are read where they are."""
    return _table([file], read_leaves(file), {})


def open_flax_shards(folder: Folder, names: Sequence[str]) -> Checkpoint:
    """Open a model in several files, each with a part of the tree."""
    files = [folder.file(name) for name in names]
    found: dict[EntryPath, Leaf] = {}
    for file in files:
        for path, leaf in read_leaves(file).items():
            if path in found:
                raise CorruptCheckpoint(
                    f"{file.name} contains {'/'.join(path)[:200]!r}, but so does another shard. "
                    "Remove the shards that do not belong to this checkpoint."
                )
            found[path] = leaf
    return _table(files, found, {})


def open_indexed_flax(folder: Folder, index_name: str) -> Checkpoint:
    """Open a model that consists of `flax_model.msgpack.index.json` and its shards."""
    index = folder.file(index_name)
    weight_map = read_weight_map(index)
    shards = sorted(set(weight_map.values()))
    if missing := sorted(set(shards) - set(folder.names())):
        raise CorruptCheckpoint(
            f"{index.name} names shards that are missing: {some(quoted(missing))}. Copy them too."
        )
    files = {shard: folder.file(shard) for shard in shards}
    found: dict[EntryPath, Leaf] = {}
    beside: dict[str, str] = {}
    for shard, file in files.items():
        for path, leaf in read_leaves(file).items():
            if weight_map.get("/".join(path)) == shard:
                found[path] = leaf
            elif leaf is not None:
                beside[f"{'.'.join(path)} ({shard})"] = "not listed in the index"
    if absent := sorted(weight_map.keys() - {"/".join(path) for path in found}):
        raise CorruptCheckpoint(f"{index.name} lists arrays that no shard contains: {some(quoted(absent))}.")
    return _table(list(files.values()), found, beside)


def _table(files: Sequence[File], found: Mapping[EntryPath, Leaf], beside: Mapping[str, str]) -> Checkpoint:
    where = files[0].name
    leaves = {path: leaf for path, leaf in found.items() if leaf is not None}
    if reference := next((leaf for leaf in leaves.values() if isinstance(leaf, Reference)), None):
        raise _elsewhere(where, reference)
    model = find_flax_model(leaves)
    arrays, unread = arrays_of_model(model, leaves)
    tensors = {name: array.tensor(name) for name, array in arrays.items()}
    model = model.without_untrained(tensors)
    kept = {name: tensor for name, tensor in tensors.items() if name not in model.skipped}
    skipped = {**model.skipped, **unread, **beside}
    if not kept:
        raise no_parameters(where, skipped)
    extras = Extras(skipped, stored_step(leaves), model.notes, networks=model.networks)
    return TableCheckpoint("flax", files, kept, {name: arrays[name].extent for name in kept}, extras)


def arrays_of_model(
    model: FlaxModel, leaves: Mapping[EntryPath, Leaf]
) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """The arrays among the entries of the model, and why each of the others is not read."""
    arrays: dict[str, StoredArray] = {}
    unread: dict[str, str] = {}
    for path, name in model.names.items():
        leaf = leaves.get(path)
        if isinstance(leaf, StoredArray) and leaf.dtype in ITEM_SIZES:
            arrays[name] = leaf
        elif isinstance(leaf, StoredArray):
            unread[name] = f"the dtype {printable(leaf.dtype[:40])}"
        elif leaf is not None and not isinstance(leaf, Reference):
            unread[name] = f"not an array, but a value of the type {type(leaf).__name__}"
    return arrays, unread


def _elsewhere(where: str, leaf: Reference) -> CheckpointError:
    return CheckpointError(
        f"{where} only refers to its arrays, which are in other files ({leaf.name[:100]!r}). Give the folder "
        "around it, with the folders of its arrays. If those are in a folder beside it that ends with _gda, "
        "save it again with Orbax."
    )


def stored_step(leaves: Mapping[EntryPath, Leaf]) -> int | None:
    """The training step among the leaves: a plain integer, or an array of one."""
    for path in step_paths(leaves):
        leaf = leaves[path]
        if type(leaf) is int and 0 <= leaf <= INT64:
            return leaf
        if isinstance(leaf, StoredArray) and leaf.dtype in ("int32", "int64") and math.prod(leaf.shape) == 1:
            return read_step(leaf.extent, ITEM_SIZES[leaf.dtype])
    return None
