"""Keras's checkpoints: `.weights.h5`, its shards, `.keras` archives, and the `.h5` files of Keras 2.

https://keras.io/guides/serialization_and_saving/. Nothing is deserialised: the config in an archive is
read as JSON, for the classes of layers, and the arrays by their places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from normscope.checkpoints.base import Checkpoint, File, Folder, Tensor
from normscope.checkpoints.extents import Extent, Extras, TableCheckpoint, read_step
from normscope.checkpoints.formats.hdf5.hdf5_bytes import Hdf5Source
from normscope.checkpoints.formats.hdf5.hdf5_objects import SIGNATURE
from normscope.checkpoints.formats.hdf5.hdf5_tree import Hdf5Array, Hdf5Tree, read_tree
from normscope.checkpoints.formats.hdf5.keras_names import classes_in_config, name_datasets
from normscope.checkpoints.formats.held_bytes import Held
from normscope.checkpoints.formats.json_headers import parse_object
from normscope.checkpoints.formats.model_entries import no_parameters
from normscope.checkpoints.storage import zips
from normscope.checkpoints.storage.zips import Member
from normscope.errors import CheckpointError, CorruptCheckpoint

SHARD_INDEX = re.compile(r"^(.+)\.weights\.json$")
_WEIGHTS, _CONFIG = "model.weights.h5", "config.json"
_INFLATED = 1 << 26
"""Bytes up to which a compressed file in an archive is unpacked: HDF5 has to be read here and there."""
_JSON, _SHARDS = 20_000_000, 10_000


def is_hdf5(file: File) -> bool:
    """Whether the file begins with HDF5's signature."""
    return file.size >= 48 and file.peek(0, 8) == SIGNATURE


def open_hdf5(file: File) -> Checkpoint:
    """Open the weights in a file."""
    return _checkpoint([file], read_tree(Hdf5Source(file.name, file, file.size, file.remote)), {})


def is_keras(file: File) -> bool:
    """Whether the file is an archive with a config and weights of Keras."""
    return zips.is_zip(file) and {_CONFIG, _WEIGHTS} <= zips.read_directory(file).keys()


def open_keras(file: File) -> Checkpoint:
    """Open the weights in an archive; the config beside them says which classes the layers have."""
    members = zips.read_directory(file)
    config = members[_CONFIG]
    classes: Mapping[str, str] = {}
    if config.size <= _JSON:
        text = bytes(zips.member_extent(file, config).read(0, config.size))
        classes = classes_in_config(parse_object(text, f"{file.name}/{_CONFIG}"))
    return _checkpoint([file], read_tree(_member(file, members[_WEIGHTS])), classes)


def _member(file: File, member: Member) -> Hdf5Source:
    extent: Extent = zips.member_extent(file, member)
    if extent.sequential:
        if member.size > _INFLATED:
            raise CheckpointError(
                f"{file.name} has compressed weights of {member.size:,} bytes (limit {_INFLATED:,}), which "
                f"cannot be read here and there. Unpack {_WEIGHTS} from it, and give that."
            )
        extent = Held(bytes(extent.read(0, member.size)))
    return Hdf5Source(file.name, extent, member.size, file.remote)


def open_keras_shards(folder: Folder, index_name: str) -> Checkpoint:
    """Open weights that are in several files, which an index names."""
    index = folder.file(index_name)
    weight_map = parse_object(index.peek(0, min(index.size, _JSON)), index.name).get("weight_map")
    names = _shards(weight_map, index.name)
    missing = [name for name in names if name not in folder.names()]
    if missing:
        raise CorruptCheckpoint(
            f"{index.name} names {len(names)} files, of which {len(missing)} are missing, "
            f"the first of them {missing[0][:200]!r}. Copy them too."
        )
    files = [folder.file(name) for name in names]
    whole = Hdf5Tree()
    for file in files:
        part = read_tree(Hdf5Source(file.name, file, file.size, file.remote))
        if repeated := whole.datasets.keys() & part.datasets.keys():
            raise CorruptCheckpoint(
                f"{index.name} has {'/'.join(min(repeated))[:200]!r} in two of its files."
            )
        whole.datasets |= part.datasets
        whole.attributes |= part.attributes
        whole.skipped |= part.skipped
    return _checkpoint([index, *files], whole, {})


def _shards(weight_map: object, where: str) -> list[str]:
    """The files that an index names: files of its own folder only."""
    values = weight_map.values() if isinstance(weight_map, dict) else ()
    listed = [name for value in values for name in (value if isinstance(value, list) else [value])]
    if not listed or not all(isinstance(name, str) and "/" not in name for name in listed):
        raise CorruptCheckpoint(f"{where} is not an index of Keras's weights.")
    names = sorted(set(listed))
    if len(names) > _SHARDS:
        raise CorruptCheckpoint(f"{where} names too many files: {len(names):,} (limit {_SHARDS:,}).")
    return names


def _checkpoint(files: Sequence[File], tree: Hdf5Tree, classes: Mapping[str, str]) -> Checkpoint:
    named = name_datasets(tree, classes)
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    for name, path in named.paths.items():
        dataset = tree.datasets[path]
        if dataset.extent is None:
            named.skipped[name] = dataset.reason
        else:
            storage = (dataset.storage, "/".join(path)) if len(files) > 1 else dataset.storage
            tensors[name] = Tensor(name, dataset.shape, dataset.dtype, storage)
            extents[name] = dataset.extent
    if not tensors:
        raise no_parameters(files[0].name, named.skipped)
    step = None if named.counter is None else _step(tree.datasets[named.counter])
    return TableCheckpoint("hdf5", files, tensors, extents, Extras(named.skipped, step))


def _step(counter: Hdf5Array) -> int | None:
    return None if counter.extent is None else read_step(counter.extent, int(counter.dtype[3:]) // 8)
