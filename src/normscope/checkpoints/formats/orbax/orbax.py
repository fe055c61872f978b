"""Orbax and T5X checkpoints: folders of zarr arrays, or one OCDBT store of them, through tensorstore.

https://orbax.readthedocs.io/en/latest/guides/checkpoint/checkpoint_format.html. Arrays are found
by their own metadata (`.zarray`, `zarr.json`), so that any writer of the layout will do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from normscope.checkpoints.base import Checkpoint, Folder, Tensor
from normscope.checkpoints.formats.extents import Extras, TableCheckpoint
from normscope.checkpoints.formats.model_entries import select_model
from normscope.checkpoints.formats.orbax.zarr_arrays import ZarrArray, parse_metadata
from normscope.checkpoints.formats.orbax.zarr_places import MANIFEST, METADATA, Place
from normscope.checkpoints.formats.torch.state_dicts import STEP_KEYS
from normscope.errors import CheckpointError, CorruptCheckpoint, NormscopeError

_LOOKED_AT = 3


def is_orbax(folder: Folder) -> bool:
    """Whether the folder is an OCDBT store, or one of its first subfolders a zarr array."""
    names = folder.names()
    if MANIFEST in names:
        return True
    below = [name for name in names if name.endswith("/") and not name.startswith((".", "_", "ocdbt."))]
    return any(not METADATA.keys().isdisjoint(folder.folder(name).names()) for name in below[:_LOOKED_AT])


def open_orbax(folder: Folder) -> Checkpoint:
    """The arrays that are parameters, each opened when it is first read."""
    place = Place(folder)
    try:
        return _open(place)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        place.close()
        raise CorruptCheckpoint(f"{folder.name} has damaged metadata ({str(error)[:100]}).") from None
    except NormscopeError:
        place.close()
        raise


def _open(place: Place) -> Checkpoint:
    described = place.descriptions()
    found = {name: ZarrArray(place, name, *parse_metadata(_parse(data))) for name, data in described.items()}
    paths = {tuple(name.replace("/", ".").split(".")): name for name in found}
    selection = select_model(paths)
    arrays = {name: found[paths[path]] for path, name in selection.names.items()}
    if not arrays:
        raise CheckpointError(f"{place.name} holds no model's arrays, only {sorted(selection.skipped)[:3]}.")
    tensors = {name: Tensor(name, array.shape, array.dtype, name) for name, array in arrays.items()}
    extras = Extras(selection.skipped, _step(found))
    return TableCheckpoint("orbax", [place], tensors, arrays, extras)


def _step(found: Mapping[str, ZarrArray]) -> int | None:
    for name, array in found.items():
        if name.split(".")[-1] in STEP_KEYS and name.count(".") <= 1 and array.is_counter:
            value = int.from_bytes(array.read(0, array.nbytes), "little", signed=True)
            return value if value >= 0 else None
    return None


def _parse(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("metadata that is no object")
    return value
