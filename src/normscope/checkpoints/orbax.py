"""Orbax and T5X checkpoints: folders of zarr arrays, or one OCDBT store of them, through tensorstore.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html. Arrays are found
by their own metadata (`.zarray`, `zarr.json`), so that any writer of the layout will do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.checkpoints.base import Buffer, Checkpoint, File, Folder, Tensor
from normscope.checkpoints.extents import Extras, TableCheckpoint
from normscope.checkpoints.extras import require
from normscope.checkpoints.folders import LocalFolder
from normscope.checkpoints.selection import select_model
from normscope.checkpoints.state_dicts import STEP_KEYS
from normscope.checkpoints.zarr_arrays import ZarrArray, parse_metadata
from normscope.errors import CheckpointError, CorruptCheckpoint

_MANIFEST = "manifest.ocdbt"
_METADATA = {".zarray": "zarr", "zarr.json": "zarr3"}
_LOOKED_AT = 3
_ENTRIES = 300_000


def is_orbax(folder: Folder) -> bool:
    """Whether the folder is an OCDBT store, or one of its first subfolders a zarr array."""
    names = folder.names()
    if _MANIFEST in names:
        return True
    below = [name for name in names if name.endswith("/") and not name.startswith((".", "_", "ocdbt."))]
    return any(not _METADATA.keys().isdisjoint(folder.folder(name).names()) for name in below[:_LOOKED_AT])


def open_orbax(folder: Folder) -> Checkpoint:
    """The arrays that are parameters, each opened when it is first read."""
    if not isinstance(folder, LocalFolder):
        raise CheckpointError(
            f"{folder.name} is an Orbax checkpoint, which can be read only from a local disk."
        )
    try:
        found = _in_store(folder.path) if _MANIFEST in folder.names() else _in_folders(folder)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptCheckpoint(f"{folder.name} has damaged metadata ({str(error)[:100]}).") from None
    paths = {tuple(name.replace("/", ".").split(".")): name for name in found}
    selection = select_model(paths)
    arrays = {name: found[paths[path]] for path, name in selection.names.items()}
    if not arrays:
        raise CheckpointError(f"{folder.name} holds no model's arrays, only {sorted(selection.skipped)[:3]}.")
    tensors = {name: Tensor(name, array.shape, array.dtype, name) for name, array in arrays.items()}
    extras = Extras(selection.skipped, _step(found))
    return TableCheckpoint("orbax", [_Tree(folder.path)], tensors, arrays, extras)


def _step(found: Mapping[str, ZarrArray]) -> int | None:
    for name, array in found.items():
        if name.split(".")[-1] in STEP_KEYS and name.count(".") <= 1 and array.is_counter:
            value = int.from_bytes(array.read(0, array.nbytes), "little", signed=True)
            return value if value >= 0 else None
    return None


def _in_store(path: Path) -> dict[str, ZarrArray]:
    """Arrays of an OCDBT store, whose keys are NAME/.zarray and NAME/chunk."""
    tensorstore = require("tensorstore", "orbax", "Reading Orbax checkpoints")
    base = {"driver": "file", "path": f"{path.absolute()}/"}
    try:
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
        keys = [key.decode("utf-8", "replace") for key in store.list().result()]
    except Exception as error:  # tensorstore raises ValueError and subclasses of its own
        raise CorruptCheckpoint(f"{path} is no readable OCDBT store ({str(error)[:200]}).") from None
    if len(keys) > _ENTRIES:
        raise CorruptCheckpoint(f"{path} holds more entries than any real checkpoint.")
    found = {}
    for key in keys:
        name, _, kind = key.rpartition("/")
        if kind in _METADATA:
            metadata = _parse(bytes(store[key]))
            spec = {
                "driver": _METADATA[kind],
                "kvstore": {"driver": "ocdbt", "base": base, "path": f"{name}/"},
            }
            found[name] = ZarrArray(spec, *parse_metadata(metadata))
    return found


def _in_folders(folder: LocalFolder) -> dict[str, ZarrArray]:
    """Arrays that are folders of their own, directly inside."""
    found = {}
    for name in folder.names():
        inside = folder.folder(name) if name.endswith("/") else None
        kind = next((k for k in _METADATA if inside is not None and k in inside.names()), None)
        if inside is not None and kind is not None:
            file = inside.file(kind)
            metadata = _parse(file.peek(0, min(file.size, 1_000_000)))
            path = f"{inside.path.absolute()}/"
            spec = {"driver": _METADATA[kind], "kvstore": {"driver": "file", "path": path}}
            found[name.rstrip("/")] = ZarrArray(spec, *parse_metadata(metadata))
    return found


def _parse(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("metadata that is no object")
    return value


@dataclass(frozen=True)
class _Listed:
    path: str
    size: int
    changed: int


class _Tree(File):
    """All files below a folder, for their size and digest; tensorstore does the reading."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        found = ((p, p.stat()) for p in sorted(path.rglob("*")) if p.is_file())
        self._listed = [_Listed(str(p.relative_to(path)), s.st_size, s.st_mtime_ns) for p, s in found]
        self.size = sum(listed.size for listed in self._listed)

    def read(self, start: int, stop: int) -> Buffer:
        """Not possible: a folder has no bytes of its own."""
        raise CorruptCheckpoint(f"{self.name} is a folder, which cannot be read as a file.")

    @property
    def digest(self) -> str:
        """Hash of every file's path, size and time of change."""
        return hashlib.blake2b(repr(self._listed).encode(), digest_size=16).hexdigest()

    def close(self) -> None:
        """Nothing is open."""
