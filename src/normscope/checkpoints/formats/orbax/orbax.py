"""Orbax and T5X checkpoints: folders of zarr arrays, or an OCDBT store of them, read through tensorstore.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html. Arrays are found
by their own metadata (`.zarray`, `zarr.json`), so it does not matter which library wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from normscope.checkpoints.base import Checkpoint, Folder, Tensor
from normscope.checkpoints.extents import Extras, TableCheckpoint, read_step
from normscope.checkpoints.formats.model_entries import no_parameters, select_model
from normscope.checkpoints.formats.orbax.zarr_arrays import ZarrArray, parse_metadata
from normscope.checkpoints.formats.orbax.zarr_folder import MANIFEST, METADATA, ZarrFolder
from normscope.checkpoints.slot_names import STEP_KEYS
from normscope.errors import CorruptCheckpoint, NormscopeError

_SUBFOLDERS_CHECKED = 3


def is_orbax(folder: Folder) -> bool:
    """Whether the folder is an OCDBT store, or one of its first subfolders is a zarr array."""
    names = folder.names()
    if MANIFEST in names:
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
    found = {name: ZarrArray(store, name, *parse_metadata(_parse(data))) for name, data in described.items()}
    paths = {tuple(name.replace("/", ".").split(".")): name for name in found}
    selection = select_model(paths)
    arrays = {name: found[paths[path]] for path, name in selection.names.items()}
    if not arrays:
        raise no_parameters(store.name, selection.skipped)
    tensors = {name: Tensor(name, array.shape, array.dtype, name) for name, array in arrays.items()}
    extras = Extras(selection.skipped, _step(found), networks=selection.networks)
    return TableCheckpoint("orbax", [store], tensors, arrays, extras)


def _step(found: Mapping[str, ZarrArray]) -> int | None:
    for name, array in found.items():
        if name.split(".")[-1] in STEP_KEYS and name.count(".") <= 1 and array.is_counter:
            return read_step(array, array.nbytes)
    return None


def _parse(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("metadata is not a JSON object")
    return value
