"""The checkpoints among the files of one folder: single files, and files that belong together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.flax.flax_files import open_flax_shards, open_indexed_flax
from normscope.checkpoints.formats.hdf5.keras_files import SHARD_INDEX, open_keras_shards
from normscope.checkpoints.formats.json_headers import parse_object
from normscope.checkpoints.formats.onnx.onnx_files import SUFFIX as ONNX
from normscope.checkpoints.formats.onnx.onnx_files import open_onnx_in
from normscope.checkpoints.formats.other_layouts import is_beside_weights, layout_by_name
from normscope.checkpoints.formats.quantised.beside_config import read_quantization_config
from normscope.checkpoints.formats.quantised.schemes import dequantised
from normscope.checkpoints.formats.ranks.rank_files import find_rank_files
from normscope.checkpoints.formats.registry import file_suffixes, open_file, recognise
from normscope.checkpoints.formats.safetensors import open_sharded, open_shards
from normscope.checkpoints.formats.tensorflow.tensor_bundle import INDEX_SUFFIX, is_bundle, open_bundle
from normscope.checkpoints.formats.torch.pickles import open_bin_shards, open_sharded_bin
from normscope.checkpoints.limits import INT64, is_text, open_checked
from normscope.checkpoints.series.names import strip_suffix
from normscope.errors import CheckpointError, CorruptCheckpoint, NormscopeError
from normscope.remarks import LeftOut

_STATE_LIMIT = 50_000_000
_SHARD = re.compile(r"^(.+)-([0-9]{5})-of-([0-9]{5})\.(safetensors|bin|pt|pth|msgpack)$")
_KERAS_SHARD = re.compile(r"^.+_[0-9]{5}\.weights\.h5$")
_INDEX = re.compile(r"^(.+)\.(safetensors|bin|msgpack)\.index\.json$")

IGNORED = re.compile(
    r"^(\..*|readme.*|licen[cs]e.*|tokenizer.*|vocab.*|merges.*|latest|checkpoint"
    r"|(optim(izer)?|opt_state)(_[^/]*)?\.(pt|pth|bin|safetensors|msgpack)|.*optim_states\.pt|(lr_)?scheduler.*\.(pt|pth|bin)"
    r"|(recipe|extra|trainer|training)_state(_[^/]*)?\.(pt|pth|bin|th)|distrib_optim\.pt"
    r"|training_args\.bin|rng_state.*\.(pt|pth)|scaler\.pt|random_states.*\.pkl|events\.out\.tfevents.*"
    r"|.*\.data-[0-9]{5}-of-[0-9]{5}|__pycache__/|runs/|logs?/|wandb/|optim(izer)?(_[^/]*)?/)$",
    re.IGNORECASE,
)
"""Names that are never checkpoints; those of folders end with a slash."""

_MAY_BE_BESIDE = re.compile(r"\.(gguf|bin)$", re.IGNORECASE)
_BESIDE = re.compile(r"mmproj|projector|clip|vocab|tok", re.IGNORECASE)
_OTHER_SUFFIX = re.compile(
    r"\.(json|jsonl|txt|md|ya?ml|toml|log|py|csv|tsv|html|sh|pbtxt"
    r"|model|db|sqlite|png|lock|tmp|part|incomplete|tiktoken|metadata|meta)$",
    re.IGNORECASE,
)
"""Endings of files that are not checkpoints, unless an added format claims them and recognises the file."""


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that was found: its label, where it is, how to open it, and the names of its files.

    `stored_step` looks for a step beside the checkpoint, for the case that its name has none. `beside` are
    other models in the same place, which are not read.
    """

    label: str
    source: str
    opener: Callable[[], Checkpoint] = field(compare=False, repr=False)
    folder: Folder = field(compare=False, repr=False)
    files: tuple[str, ...] = ()
    stored_step: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)
    beside: tuple[LeftOut, ...] = field(default=(), compare=False)

    @property
    def pinned(self) -> str:
        """The source at the version that was found, as other processes can open it."""
        return self.folder.pinned.rstrip("/") + self.source.removeprefix(self.folder.name.rstrip("/"))

    @property
    def size(self) -> int | None:
        """Bytes of its files, as far as listing them tells; None if some are in subfolders."""
        if any(name.endswith("/") for name in self.files):
            return None
        return sum(self.folder.file(name).size for name in self.files)

    def open(self) -> Checkpoint:
        """Open the checkpoint, quantised weights as float32, and check that what it declares is possible."""
        return open_checked(self._open, self.source)

    def _open(self) -> Checkpoint:
        stored = self.opener()
        try:
            return dequantised(stored, lambda: read_quantization_config(self.folder))
        except Exception:
            stored.close()
            raise


def find_file_checkpoints(folder: Folder) -> list[FoundCheckpoint]:
    """The checkpoints among the files of a folder, not of its subfolders."""
    names = [name for name in folder.names() if not name.endswith("/") and is_text(name)]
    found: list[FoundCheckpoint] = []
    for find_group in (
        _find_indexed,
        _find_shards,
        _find_keras_shards,
        _find_onnx,
        _find_bundles,
        _find_ranks,
    ):
        used = {name for each in found for name in each.files}
        found += find_group(folder, [name for name in names if name not in used])
    used = {name for each in found for name in each.files}
    suffixes = file_suffixes()
    rest = [name for name in names if name not in used and _is_checkpoint(folder, name, suffixes)]
    return found + [_single_file(folder, name) for name in rest]


def is_other_file(folder: Folder, name: str) -> bool:
    """Whether a file is a tokenizer or a projector by its content; over a network, by its name too."""
    if not _MAY_BE_BESIDE.search(name) or (folder.file(name).remote and not _BESIDE.search(name)):
        return False
    try:
        return is_beside_weights(folder.file(name))
    except CheckpointError:
        return False


def checkpoint_of_file(folder: Folder, name: str) -> FoundCheckpoint:
    """The checkpoint that is in a file, or of which the file is a part."""
    candidates = find_file_checkpoints(folder) if _is_part(name) else []
    whole = next((found for found in candidates if name in found.files), None)
    return whole or _single_file(folder, name)


def trainer_step(folder: Folder) -> int | None:
    """The step from the state file that Hugging Face's Trainer saves beside its checkpoints."""
    if "trainer_state.json" not in folder.names():
        return None
    try:
        file = folder.file("trainer_state.json")
        step = parse_object(file.peek(0, min(file.size, _STATE_LIMIT)), file.name)["global_step"]
    except (CheckpointError, KeyError):
        return None
    return step if type(step) is int and 0 <= step <= INT64 else None


def _is_part(name: str) -> bool:
    known = _SHARD.match(name) or _INDEX.match(name) or _KERAS_SHARD.match(name) or SHARD_INDEX.match(name)
    return bool(known or name.endswith(INDEX_SUFFIX) or ".data-" in name or ONNX in name.lower())


def _single_file(folder: Folder, name: str) -> FoundCheckpoint:
    return _found(folder, strip_suffix(name), (name,), lambda: open_file(folder.file(name)))


def _found(
    folder: Folder, label: str, files: Sequence[str], opener: Callable[[], Checkpoint]
) -> FoundCheckpoint:
    return FoundCheckpoint(label, f"{folder.name.rstrip('/')}/{files[0]}", opener, folder, tuple(files))


def _is_checkpoint(folder: Folder, name: str, suffixes: tuple[str, ...]) -> bool:
    """Decide by the ending of the name, so that a damaged checkpoint is an error, or else by the content."""
    if IGNORED.match(name) or layout_by_name(name) or is_other_file(folder, name):
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


_INDEXED = {"safetensors": open_sharded, "msgpack": open_indexed_flax}
_SHARDED = {"safetensors": open_shards, "msgpack": open_flax_shards}


def _index_opener(folder: Folder, name: str, kind: str) -> Callable[[], Checkpoint]:
    return lambda: _INDEXED.get(kind, open_sharded_bin)(folder, name)


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


def _find_keras_shards(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """Keras's weights in several files, with an index of their layers."""
    found = []
    for name in names:
        if match := SHARD_INDEX.match(name):
            part = re.compile(rf"{re.escape(match[1])}_[0-9]{{5}}\.weights\.h5")
            shards = [other for other in names if part.fullmatch(other)]
            found.append(_found(folder, match[1], (name, *shards), _keras_opener(folder, name)))
    return found


def _keras_opener(folder: Folder, name: str) -> Callable[[], Checkpoint]:
    return lambda: open_keras_shards(folder, name)


def _find_onnx(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """ONNX models, each with the files beside it that are called after it."""
    models = [name for name in names if name.lower().endswith(ONNX)]
    return [
        _found(
            folder,
            strip_suffix(name),
            (name, *(n for n in names if n != name and re.fullmatch(rf"{re.escape(name)}[._].*", n))),
            _onnx_opener(folder, name),
        )
        for name in models
    ]


def _onnx_opener(folder: Folder, name: str) -> Callable[[], Checkpoint]:
    return lambda: open_onnx_in(folder, name)


def _shards_opener(folder: Folder, files: list[str], total: int, kind: str) -> Callable[[], Checkpoint]:
    def opener() -> Checkpoint:
        if len(files) != total:
            raise CorruptCheckpoint(
                f"{folder.name}/{files[0]} is one of {total} shards, but only {len(files)} were found. "
                "Copy the others too."
            )
        return _SHARDED.get(kind, open_bin_shards)(folder, files)

    return opener


def _find_ranks(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """Checkpoints of which each rank wrote a file."""
    groups = find_rank_files(folder, names)
    return [_found(folder, group.label, group.files, group.open) for group in groups]


def _find_bundles(folder: Folder, names: Sequence[str]) -> list[FoundCheckpoint]:
    """TensorFlow's checkpoints: an index and its data files."""
    found = []
    for name in names:
        if name.endswith(INDEX_SUFFIX) and _is_bundle(folder, name):
            data = [n for n in names if n.startswith(name.removesuffix(INDEX_SUFFIX) + ".data-")]
            found.append(_found(folder, strip_suffix(name), (name, *data), _bundle_opener(folder, name)))
    return found


def _is_bundle(folder: Folder, name: str) -> bool:
    try:
        return is_bundle(folder.file(name))
    except CheckpointError:
        return True  # opening it says why it cannot be read


def _bundle_opener(folder: Folder, name: str) -> Callable[[], Checkpoint]:
    return lambda: open_bundle(folder, name)


_GROUPS = (_find_indexed, _find_shards, _find_keras_shards, _find_onnx, _find_bundles, _find_ranks)
"""What finds files that belong together, in this order."""
