"""Which of a folder's checkpoints make a series, and where their steps are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from normscope.checkpoints.base import Folder
from normscope.checkpoints.formats.registry import FOLDER_FORMATS
from normscope.checkpoints.series.names import names_step, parse_label
from normscope.checkpoints.series.units import IGNORED, Unit, file_units
from normscope.errors import CheckpointError
from normscope.words import natural_key

# A folder often holds one model in several formats; the first of these is taken.
_PREFERRED = ("model", "pytorch_model", "consolidated.00", "consolidated", "diffusion_pytorch_model")


def find_units(folder: Folder) -> list[Unit]:
    """The checkpoints of a series that lies in a folder, in no order.

    Numbered subfolders that hold a checkpoint make the series, together with numbered
    files; a final `model.safetensors` beside them is the last one once more, and left out.
    """
    if whole := whole_folder(folder, _own_label(folder)):
        return [whole]
    files = file_units(folder)
    inside = [find_single(folder.folder(name), name.rstrip("/")) for name in _subfolders(folder)]
    below = [unit for unit in inside if unit is not None]
    numbered = [unit for unit in (*files, *below) if parse_label(unit.label).step is not None]
    if numbered:
        return numbered
    if files and (single := find_single(folder, _own_label(folder))):
        return [single]
    return files or below


def whole_folder(folder: Folder, label: str) -> Unit | None:
    """The checkpoint of a format whose checkpoints are folders, or None."""
    found = next((format for format in FOLDER_FORMATS if format.recognise(folder)), None)
    if found is None:
        return None
    return Unit(label, folder.name, lambda: found.open(folder), folder, tuple(folder.names()))


def find_single(folder: Folder, label: str, depth: int = 0) -> Unit | None:
    """The one checkpoint that a folder is, or None."""
    if whole := whole_folder(folder, label):
        return whole
    units = file_units(folder)
    if len(units) > 1:
        units = _prefer(units)
    if len(units) == 1:
        inner = parse_label(label).step is None and parse_label(units[0].label).step is not None
        own = units[0].label if inner else label
        return replace(units[0], label=own, stored_step=lambda: _trainer_step(folder))
    if units or depth >= 2:
        return None
    inside = [find_single(folder.folder(name), label, depth + 1) for name in _subfolders(folder)]
    found = [unit for unit in inside if unit is not None]
    folders = [unit for unit in found if unit.source == unit.folder.name]  # beside ranks' own files
    chosen = found if len(found) == 1 else folders
    return chosen[0] if len(chosen) == 1 else None


def _prefer(units: list[Unit]) -> list[Unit]:
    """One model in several formats is one checkpoint; safetensors come first."""
    for stem in _PREFERRED:
        same = [unit for unit in units if unit.label == stem]
        if same:
            return sorted(same, key=lambda unit: "safetensors" not in unit.source)[:1]
    return units


def _subfolders(folder: Folder) -> list[str]:
    names = [name for name in folder.names() if name.endswith("/") and not IGNORED.match(name)]
    return sorted(names, key=natural_key)


def _trainer_step(folder: Folder) -> int | None:
    """The step in the state that Hugging Face's Trainer leaves beside its checkpoints."""
    if "trainer_state.json" not in folder.names():
        return None
    try:
        file = folder.file("trainer_state.json")
        step = json.loads(file.peek(0, min(file.size, 50_000_000)))["global_step"]
    except (CheckpointError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if type(step) is int and step >= 0 else None


def _own_label(folder: Folder) -> str:
    """The folder's name where that tells a step; any trailing number would do inside a series only."""
    whole = folder.name if "://" in folder.name else str(Path(folder.name).absolute())
    name = whole.rstrip("/").rsplit("/", 1)[-1]
    return name if names_step(name) else "model"
