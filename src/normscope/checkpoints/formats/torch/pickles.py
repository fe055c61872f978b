"""Models in files written by torch.save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from normscope.checkpoints.base import Checkpoint, File, Folder, Tensor, quoted
from normscope.checkpoints.extents import Extent, Extras, TableCheckpoint, read_step
from normscope.checkpoints.formats.safetensors import read_weight_map
from normscope.checkpoints.formats.torch.archives import (
    Locate,
    locate_tensor,
    read_legacy,
    read_pickled,
    read_zip,
    unpickle_in,
)
from normscope.checkpoints.formats.torch.hostile_names import refuse_hostile
from normscope.checkpoints.formats.torch.pickle_machine import unpickle
from normscope.checkpoints.formats.torch.pickled_arrays import PickledArrays
from normscope.checkpoints.formats.torch.pickled_trees import find_tree
from normscope.checkpoints.formats.torch.records import TensorRecord
from normscope.checkpoints.formats.torch.state_dicts import ModelState, find_model
from normscope.checkpoints.storage import zips
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.words import some

_SHORT = 1024


def open_torch_zip(file: File) -> Checkpoint:
    """Open the model in a zip archive of torch.save."""
    return open_models([_read_zip(file)])


def open_legacy(file: File) -> Checkpoint:
    """Open the model in a file of torch.save before 1.6, or with the old serialisation; or a pickled tree."""
    found = read_legacy(file)
    refuse_hostile(found.pickle, file.name)
    if arrays := PickledArrays(file, found.pickle):
        checkpoint = open_models([(file, find_tree(found.pickle, file.name), arrays.locate)])
        checkpoint.format = "pickle"
        return checkpoint
    return open_models([(file, find_model(found.pickle, file.name), found.locate)])


def open_sharded_bin(folder: Folder, index_name: str) -> Checkpoint:
    """Open a model that consists of `pytorch_model.bin.index.json` and its shards."""
    index = folder.file(index_name)
    shards = sorted(set(read_weight_map(index).values()))
    if missing := sorted(set(shards) - set(folder.names())):
        listed = some(quoted(missing))
        raise CorruptCheckpoint(f"{index.name} names shards that are missing: {listed}. Copy them too.")
    return open_bin_shards(folder, shards)


def open_bin_shards(folder: Folder, shards: list[str]) -> Checkpoint:
    """Open a model in several files, each with some of its tensors."""
    return open_models([_read_any(folder.file(shard)) for shard in shards])


def read_single(file: File) -> tuple[Tensor, Extent]:
    """The only tensor in an archive."""
    checkpoint_file, state, locate = _read_any(file)
    if len(state.tensors) != 1:
        raise CorruptCheckpoint(f"{file.name} should contain one tensor, but has {len(state.tensors)}.")
    ((name, record),) = state.tensors.items()
    extent, _, _ = locate_tensor(checkpoint_file, name, record, locate)
    return Tensor(name, record.shape, record.dtype, name), extent


def read_single_value(file: File) -> Any:
    """The value in an archive, if it is a string or a number; else None."""
    value = read_pickled(file).pickle.value if zips.is_zip(file) else None
    return value if isinstance(value, str | int | float) else None


PickledModel = tuple[File, ModelState, Locate]


def _read_any(file: File) -> PickledModel:
    return _read_zip(file) if zips.is_zip(file) else _read_legacy(file)


def _read_zip(file: File) -> PickledModel:
    data, locate = read_zip(file)
    return file, _describe(file, data), locate


def _read_legacy(file: File) -> PickledModel:
    found = read_legacy(file)
    return file, find_model(found.pickle, file.name), found.locate


def _describe(file: File, data: memoryview) -> ModelState:
    """The model that a pickle describes.

    A distributed checkpoint has one archive per tensor, with many equal pickles: short ones are cached.
    """
    if len(data) <= _SHORT:
        with suppress(CheckpointError):  # raised again below, with the name of the file
            return _describe_cached(bytes(data))
    return find_model(unpickle_in(file, data), file.name)


@lru_cache(maxsize=1024)
def _describe_cached(data: bytes) -> ModelState:
    return find_model(unpickle(memoryview(data)), "")


def open_models(parts: Sequence[PickledModel]) -> TableCheckpoint:
    """One checkpoint of the models in several files."""
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    skipped: dict[str, str] = {}
    views: defaultdict[tuple[str, str], set[tuple[int, int, TensorRecord]]] = defaultdict(set)
    for file, state, locate in parts:
        skipped.update(state.skipped)
        for name, record in state.tensors.items():
            if record.repeats:
                skipped[name] = "an expanded view: it repeats elements"
                continue
            extents[name], low, high = locate_tensor(file, name, record, locate)
            tensors[name] = Tensor(name, record.shape, record.dtype, (file.name, record))
            views[file.name, record.storage.key].add((low, high, record))
    step = _stored_step(parts)
    buffers = frozenset(name for _, state, _ in parts for name in state.buffers)
    networks = tuple(dict.fromkeys(key for _, state, _ in parts for key in state.networks))
    parameters = frozenset(name for _, state, _ in parts for name in state.parameters)
    metadata = {name: text for _, state, _ in parts for name, text in state.metadata.items()}
    extras = Extras(skipped, step, _overlap_notes(views), buffers, networks, parameters, metadata)
    return TableCheckpoint("pytorch", [part[0] for part in parts], tensors, extents, extras)


def _stored_step(parts: Sequence[PickledModel]) -> int | None:
    for file, state, locate in parts:
        if isinstance(state.step, TensorRecord):
            extent, low, high = locate_tensor(file, "step", state.step, locate)
            return read_step(extent, high - low)
        if state.step is not None:
            return state.step
    return None


def _overlap_notes(views: Mapping[tuple[str, str], set[tuple[int, int, TensorRecord]]]) -> tuple[str, ...]:
    """A note on tensors that share part of their bytes without being equal."""
    count = 0
    for spans in views.values():
        end = -1
        for low, high, _ in sorted(spans, key=lambda span: span[:2]) if len(spans) > 1 else ():
            count += low < end and high > low
            end = max(end, high)
    if not count:
        return ()
    return (f"{count} tensors share part of their storage with another; each is counted in full.",)
