"""Which files of a folder are checkpoints, and which belong together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.registry import FORMATS, open_file, recognise
from normscope.checkpoints.formats.safetensors import open_sharded, open_shards
from normscope.checkpoints.formats.tensorflow.tensor_bundle import SUFFIX, is_bundle, open_bundle
from normscope.checkpoints.formats.torch.pickles import open_bin_shards, open_sharded_bin
from normscope.checkpoints.series.names import strip_suffix
from normscope.errors import CorruptCheckpoint, NormscopeError

_SUFFIXES = tuple({suffix for format in FORMATS for suffix in format.suffixes})
_SHARD = re.compile(r"^(.+)-([0-9]{5})-of-([0-9]{5})\.(safetensors|bin|pt|pth)$")
_INDEX = re.compile(r"^(.+)\.(safetensors|bin)\.index\.json$")

_TEXT = "json|jsonl|txt|md|ya?ml|toml|log|py|csv|tsv|html|sh|pbtxt"
_OTHER = "model|db|sqlite|png|lock|tmp|part|incomplete|msgpack|h5|onnx|tiktoken|metadata|meta"
IGNORED = re.compile(
    rf"^(\..*|readme.*|licen[cs]e.*|.*\.({_TEXT}|{_OTHER})|tokenizer.*|vocab.*|merges.*|latest|checkpoint"
    r"|optim(izer)?(_[^/]*)?\.(pt|pth|bin|safetensors)|.*optim_states\.pt|(lr_)?scheduler.*\.(pt|pth|bin)"
    r"|training_args\.bin|rng_state.*\.(pt|pth)|scaler\.pt|random_states.*\.pkl|events\.out\.tfevents.*"
    r"|.*\.data-[0-9]{5}-of-[0-9]{5}|__pycache__/|runs/|logs?/|wandb/|optim(izer)?(_[^/]*)?/)$",
    re.IGNORECASE,
)
"""Names that never are checkpoints; folders end with a slash."""


@dataclass(frozen=True)
class Unit:
    """One checkpoint found: its label, where it is, how to open it, and its files' names.

    `stored_step` looks for a step beside the checkpoint, where its name tells none.
    """

    label: str
    source: str
    open: Callable[[], Checkpoint] = field(compare=False, repr=False)
    folder: Folder = field(compare=False, repr=False)
    files: tuple[str, ...] = ()
    stored_step: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)


def file_units(folder: Folder) -> list[Unit]:
    """The checkpoints among a folder's own files."""
    names = [name for name in folder.names() if not name.endswith("/")]
    units: list[Unit] = []
    for group in (_indexed, _shards, _bundles):
        taken = {name for unit in units for name in unit.files}
        units += group(folder, [name for name in names if name not in taken])
    taken = {name for unit in units for name in unit.files}
    rest = (name for name in names if name not in taken and not IGNORED.match(name))
    return units + [_single(folder, name) for name in rest if _is_candidate(folder, name)]


def file_unit(folder: Folder, name: str) -> Unit:
    """The checkpoint that a file is, or is a part of."""
    whole = [unit for unit in file_units(folder) if name in unit.files] if _is_part(name) else []
    return whole[0] if whole else _single(folder, name)


def _is_part(name: str) -> bool:
    return bool(_SHARD.match(name) or _INDEX.match(name) or name.endswith(SUFFIX) or ".data-" in name)


def _single(folder: Folder, name: str) -> Unit:
    return _unit(folder, strip_suffix(name), (name,), lambda: open_file(folder.file(name)))


def _unit(folder: Folder, label: str, files: Sequence[str], opener: Callable[[], Checkpoint]) -> Unit:
    return Unit(label, f"{folder.name.rstrip('/')}/{files[0]}", opener, folder, tuple(files))


def _is_candidate(folder: Folder, name: str) -> bool:
    """A known ending is believed, so that a broken file is an error and not overlooked."""
    if name.lower().endswith(_SUFFIXES):
        return True
    try:
        return recognise(folder.file(name)) is not None
    except NormscopeError:
        return False


def _indexed(folder: Folder, names: Sequence[str]) -> list[Unit]:
    """Sharded checkpoints with an index of their tensors."""
    units = []
    for name in names:
        if match := _INDEX.match(name):
            stem, kind = match.groups()
            shards = [n for n in names if (m := _SHARD.match(n)) and m.group(1, 4) == (stem, kind)]
            units.append(_unit(folder, stem, (name, *shards), _index_opener(folder, name, kind)))
    return units


def _index_opener(folder: Folder, name: str, kind: str) -> Callable[[], Checkpoint]:
    return lambda: (open_sharded if kind == "safetensors" else open_sharded_bin)(folder, name)


def _shards(folder: Folder, names: Sequence[str]) -> list[Unit]:
    """Sharded checkpoints without an index: STEM-00001-of-00004.safetensors and its likes."""
    groups: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in names:
        if match := _SHARD.match(name):
            groups[match.group(1), match.group(3), match.group(4)].append(name)
    return [
        _unit(folder, stem, files, _shards_opener(folder, files, int(total), kind))
        for (stem, total, kind), files in groups.items()
    ]


def _shards_opener(folder: Folder, files: list[str], total: int, kind: str) -> Callable[[], Checkpoint]:
    def opener() -> Checkpoint:
        if len(files) != total:
            raise CorruptCheckpoint(
                f"{folder.name}/{files[0]} is one of {total} shards, but {len(files)} of them are there."
            )
        return (open_shards if kind == "safetensors" else open_bin_shards)(folder, files)

    return opener


def _bundles(folder: Folder, names: Sequence[str]) -> list[Unit]:
    """TensorFlow's checkpoints: an index and its data files."""
    units = []
    for name in names:
        if name.endswith(SUFFIX) and is_bundle(folder.file(name)):
            data = [n for n in names if n.startswith(name.removesuffix(SUFFIX) + ".data-")]
            units.append(_unit(folder, strip_suffix(name), (name, *data), _bundle_opener(folder, name)))
    return units


def _bundle_opener(folder: Folder, name: str) -> Callable[[], Checkpoint]:
    return lambda: open_bundle(folder, name)
