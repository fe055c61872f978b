"""The weights of a model's folder, file or repository, as a scan reads them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import open_series
from normscope.checkpoints.storage.hub import SCHEME
from normscope.errors import NormscopeError
from normscope.network.places.model_places import ModelPlace
from normscope.network.places.name_fitting import Shapes


def open_stored(place: ModelPlace) -> Checkpoint:
    """Open the checkpoint of a model; of a folder with several, the one that is not in a subfolder."""
    if place.on_hub:
        address = str(place) if str(place).startswith(SCHEME) else f"{SCHEME}{place}"
        return open_series(address, default_step=0).entries[0].open()
    entries = open_series(str(place), default_step=0).entries
    here = [entry for entry in entries if Path(entry.source).absolute().parent == Path(place.name).absolute()]
    return (here or entries)[0].open()


def stored_shapes(place: ModelPlace) -> Shapes:
    """The shapes of a model's stored tensors; empty if they cannot be read."""
    try:
        with closing(open_stored(place)) as checkpoint:
            return {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    except NormscopeError:
        return {}
