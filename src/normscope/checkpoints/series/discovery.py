"""Which files and folders are checkpoints, which belong together, and which of them form a series."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.registry import file_suffixes, open_file, recognise, recognise_folder
from normscope.checkpoints.formats.safetensors import open_sharded, open_shards
from normscope.checkpoints.formats.tensorflow.tensor_bundle import INDEX_SUFFIX, is_bundle, open_bundle
from normscope.checkpoints.formats.torch.pickles import open_bin_shards, open_sharded_bin
from normscope.checkpoints.series.names import names_step, parse_label, strip_suffix
from normscope.errors import CheckpointError, CorruptCheckpoint, NormscopeError
from normscope.words import natural_key

_SHARD = re.compile(r"^(.+)-([0-9]{5})-of-([0-9]{5})\.(safetensors|bin|pt|pth)$")
_INDEX = re.compile(r"^(.+)\.(safetensors|bin)\.index\.json$")

_IGNORED = re.compile(
    r"^(\..*|readme.*|licen[cs]e.*|tokenizer.*|vocab.*|merges.*|latest|checkpoint"
    r"|optim(izer)?(_[^/]*)?\.(pt|pth|bin|safetensors)|.*optim_states\.pt|(lr_)?scheduler.*\.(pt|pth|bin)"
    r"|training_args\.bin|rng_state.*\.(pt|pth)|scaler\.pt|random_states.*\.pkl|events\.out\.tfevents.*"
    r"|.*\.data-[0-9]{5}-of-[0-9]{5}|__pycache__/|runs/|logs?/|wandb/|optim(izer)?(_[^/]*)?/)$",
    re.IGNORECASE,
)
"""Names that are never checkpoints; those of folders end with a slash."""

_OTHER_SUFFIX = re.compile(
    r"\.(json|jsonl|txt|md|ya?ml|toml|log|py|csv|tsv|html|sh|pbtxt"
    r"|model|db|sqlite|png|lock|tmp|part|incomplete|msgpack|h5|onnx|tiktoken|metadata|meta)$",
    re.IGNORECASE,
)
"""Endings of files that are not checkpoints, unless an added format claims them and recognises the file."""

# A folder often contains one model in several formats; the first of these names is used.
_PREFERRED = ("model", "pytorch_model", "consolidated.00", "consolidated", "diffusion_pytorch_model")


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that was found: its label, where it is, how to open it, and the names of its files.

    `stored_step` looks for a step beside the checkpoint, for the case that its name has none.
    """

    label: str
    source: str
    open: Callable[[], Checkpoint] = field(compare=False, repr=False)
    folder: Folder = field(compare=False, repr=False)
    files: tuple[str, ...] = ()
    stored_step: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)


def find_series(folder: Folder) -> list[FoundCheckpoint]:
    """The checkpoints of the series in a folder, unordered.

    Numbered files and numbered subfolders with a checkpoint form the series. A final
    `model.safetensors` beside them is a copy of the last one, and is left out.
    """
    if whole := _folder_checkpoint(folder, _own_label(folder)):
        return [whole]
    files = find_file_checkpoints(folder)
    inside = [find_single(folder.folder(name), name.rstrip("/")) for name in _subfolders(folder)]
    below = [found for found in inside if found is not None]
    numbered = [found for found in (*files, *below) if parse_label(found.label).step is not None]
    if numbered:
        return numbered
    if files and (single := find_single(folder, _own_label(folder))):
        return [single]
    return files or below


def find_single(folder: Folder, label: str, depth: int = 0) -> FoundCheckpoint | None:
    """The checkpoint, if a folder contains exactly one."""
    if whole := _folder_checkpoint(folder, label):
        return whole
    files = find_file_checkpoints(folder)
    if len(files) > 1:
        files = _prefer(files)
    if len(files) == 1:
        inner = parse_label(label).step is None and parse_label(files[0].label).step is not None
        own = files[0].label if inner else label
        return replace(files[0], label=own, stored_step=lambda: _trainer_step(folder))
    if files or depth >= 2:
        return None
    inside = [find_single(folder.folder(name), label, depth + 1) for name in _subfolders(folder)]
    below = [found for found in inside if found is not None]
    # Trainers also save each rank's own files; a folder that is a checkpoint as a whole is preferred.
    whole_folders = [found for found in below if found.source == found.folder.name]
    chosen = below if len(below) == 1 else whole_folders
    return chosen[0] if len(chosen) == 1 else None


def find_file_checkpoints(folder: Folder) -> list[FoundCheckpoint]:
    """The checkpoints among the files of a folder, not of its subfolders."""
    names = [name for name in folder.names() if not name.endswith("/")]
    found: list[FoundCheckpoint] = []
    for find_group in (_find_indexed, _find_shards, _find_bundles):
        used = {name for each in found for name in each.files}
        found += find_group(folder, [name for name in names if name not in used])
    used = {name for each in found for name in each.files}
    suffixes = file_suffixes()
    rest = [name for name in names if name not in used and _is_checkpoint(folder, name, suffixes)]
    return found + [_single_file(folder, name) for name in rest]


def checkpoint_of_file(folder: Folder, name: str) -> FoundCheckpoint:
    """The checkpoint that is in a file, or of which the file is a part."""
    candidates = find_file_checkpoints(folder) if _is_part(name) else []
    whole = next((found for found in candidates if name in found.files), None)
    return whole or _single_file(folder, name)


def _folder_checkpoint(folder: Folder, label: str) -> FoundCheckpoint | None:
    """The folder itself, if its format stores checkpoints as folders."""
    format = recognise_folder(folder)
    if format is None:
        return None
    return FoundCheckpoint(label, folder.name, lambda: format.open(folder), folder, tuple(folder.names()))


def _is_part(name: str) -> bool:
    return bool(_SHARD.match(name) or _INDEX.match(name) or name.endswith(INDEX_SUFFIX) or ".data-" in name)


def _single_file(folder: Folder, name: str) -> FoundCheckpoint:
    return _found(folder, strip_suffix(name), (name,), lambda: open_file(folder.file(name)))


def _found(
    folder: Folder, label: str, files: Sequence[str], opener: Callable[[], Checkpoint]
) -> FoundCheckpoint:
    return FoundCheckpoint(label, f"{folder.name.rstrip('/')}/{files[0]}", opener, folder, tuple(files))


def _is_checkpoint(folder: Folder, name: str, suffixes: tuple[str, ...]) -> bool:
    """Decide by the ending of the name, so that a damaged checkpoint is an error, or else by the content."""
    if _IGNORED.match(name):
        return False
    known, other = name.lower().endswith(suffixes), _OTHER_SUFFIX.search(name) is not None
    if known != other:
        return known
    try:
        return recognise(folder.file(name)) is not None
    except NormscopeError:
        return False


def _find_indexed(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """Sharded checkpoints with an index of their tensors."""
    found = []
    for name in names:
        if match := _INDEX.match(name):
            stem, kind = match.groups()
            shards = [n for n in names if (m := _SHARD.match(n)) and m.group(1, 4) == (stem, kind)]
            found.append(_found(folder, stem, (name, *shards), _index_opener(folder, name, kind)))
    return found


def _index_opener(folder: Folder, name: str, kind: str) -> Callable[[], Checkpoint]:
    return lambda: (open_sharded if kind == "safetensors" else open_sharded_bin)(folder, name)


def _find_shards(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """Sharded checkpoints without an index, for example STEM-00001-of-00004.safetensors."""
    groups: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in names:
        if match := _SHARD.match(name):
            groups[match.group(1), match.group(3), match.group(4)].append(name)
    return [
        _found(folder, stem, files, _shards_opener(folder, files, int(total), kind))
        for (stem, total, kind), files in groups.items()
    ]


def _shards_opener(folder: Folder, files: list[str], total: int, kind: str) -> Callable[[], Checkpoint]:
    def opener() -> Checkpoint:
        if len(files) != total:
            raise CorruptCheckpoint(
                f"{folder.name}/{files[0]} is one of {total} shards, but only {len(files)} were found. "
                "Copy the others too."
            )
        return (open_shards if kind == "safetensors" else open_bin_shards)(folder, files)

    return opener


def _find_bundles(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """TensorFlow's checkpoints: an index and its data files."""
    found = []
    for name in names:
        if name.endswith(INDEX_SUFFIX) and is_bundle(folder.file(name)):
            data = [n for n in names if n.startswith(name.removesuffix(INDEX_SUFFIX) + ".data-")]
            found.append(_found(folder, strip_suffix(name), (name, *data), _bundle_opener(folder, name)))
    return found


def _bundle_opener(folder: Folder, name: str) -> Callable[[], Checkpoint]:
    return lambda: open_bundle(folder, name)


def _prefer(found: list[FoundCheckpoint]) -> list[FoundCheckpoint]:
    """Choose one, if it is the same model in several formats: safetensors first."""
    for stem in _PREFERRED:
        same = [each for each in found if each.label == stem]
        if same:
            return sorted(same, key=lambda each: "safetensors" not in each.source)[:1]
    return found


def _subfolders(folder: Folder) -> list[str]:
    names = [name for name in folder.names() if name.endswith("/") and not _IGNORED.match(name)]
    return sorted(names, key=natural_key)


def _trainer_step(folder: Folder) -> int | None:
    """The step from the state file that Hugging Face's Trainer saves beside its checkpoints."""
    if "trainer_state.json" not in folder.names():
        return None
    try:
        file = folder.file("trainer_state.json")
        step = json.loads(file.peek(0, min(file.size, 50_000_000)))["global_step"]
    except (CheckpointError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if type(step) is int and step >= 0 else None


def _own_label(folder: Folder) -> str:
    """The folder's name if it names a step; a number at its end counts only inside a series."""
    whole = folder.name if "://" in folder.name else str(Path(folder.name).absolute())
    name = whole.rstrip("/").rsplit("/", 1)[-1]
    return name if names_step(name) else "model"
