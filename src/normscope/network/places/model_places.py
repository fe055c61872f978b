"""Where transformers finds a model: the folders or hub repositories of its config, weights and tokenizer."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from normscope.checkpoints.storage.hub import SCHEME, parse_address
from normscope.errors import ModelError, SourceNotFound, UsageError
from normscope.network.places.placement import first_line
from normscope.network.places.source_paths import is_hub_id, not_a_model
from normscope.plugins import require

CONFIG = "config.json"
GGUF = ".gguf"
_GGUF_HEADER = 1 << 26  # bytes: more than the metadata of any vocabulary
_STANDARD_WEIGHTS = re.compile(r"(pytorch_)?model\.(safetensors|bin)(\.index\.json)?")
_TOKENIZER_FILE = re.compile(
    r"(tokenizer|vocab|merges|special_tokens_map|added_tokens).*\.(json|txt)|.*\.(model|tiktoken)"
)


@dataclass(frozen=True)
class ModelPlace:
    """A local folder, or a hub repository at a revision; `str()` gives a source that names it."""

    name: str
    revision: str | None = None
    subfolder: str = ""
    on_hub: bool = False
    gguf: str = ""
    """The name of a GGUF file in the folder, which contains the config, the tokenizer and the weights."""

    def __str__(self) -> str:
        if self.gguf:
            return str(Path(self.name) / self.gguf)
        name = f"{self.name}@{self.revision}" if self.revision else self.name
        return f"{SCHEME}{name}/{self.subfolder}" if self.subfolder else name

    @property
    def options(self) -> dict[str, str]:
        """The keyword arguments of transformers' from_pretrained."""
        named = {"revision": self.revision, "subfolder": self.subfolder, "gguf_file": self.gguf}
        return {key: value for key, value in named.items() if value}


@dataclass(frozen=True)
class ModelFiles:
    """Config and tokenizer of one checkpoint.

    `standard` says whether from_pretrained finds the checkpoint's weights beside the config;
    otherwise they are read tensor by tensor.
    """

    config: ModelPlace
    tokenizer: ModelPlace
    standard: bool


def find_place(source: str | os.PathLike[str]) -> ModelPlace:
    """The place that a folder or a hub id names; anything else is a UsageError."""
    text = os.fspath(source)
    if Path(text).is_dir():
        return ModelPlace(text)
    if Path(text).is_file() and Path(text).suffix.lower() == GGUF:
        return ModelPlace(str(Path(text).parent), gguf=Path(text).name)
    if text.startswith(SCHEME):
        address = parse_address(text)
        return ModelPlace(address.name, address.revision, address.folder, on_hub=True)
    if not is_hub_id(text):
        raise SourceNotFound(not_a_model(text))
    name, _, revision = text.partition("@")
    return ModelPlace(name, revision or None, on_hub=True)


def find_files(checkpoint: str, sources: Sequence[str]) -> ModelFiles | None:
    """The files that belong to a checkpoint of a series; None if it has no config.json.

    A local checkpoint without a config.json of its own uses the nearest one above it, up to one folder
    above what the user named: a checkpoint that is named alone finds what it finds in its series. The
    same holds for its tokenizer.
    """
    if checkpoint.startswith(SCHEME):
        address = parse_address(checkpoint)
        inside = PurePosixPath(address.folder)
        if inside.suffix.lower() == GGUF:
            raise UsageError(f"{checkpoint}: a GGUF file is read from a disk; download it first")
        folder = "" if inside.parent == PurePosixPath(".") else str(inside.parent)
        place = ModelPlace(address.name, address.revision, folder, on_hub=True)
        return ModelFiles(place, place, is_standard(inside.name))
    path = Path(checkpoint).absolute()
    if path.suffix.lower() == GGUF:
        place = ModelPlace(str(path.parent), gguf=path.name)
        return ModelFiles(place, place, standard=True)
    folders = list(_folders_above(path if path.is_dir() else path.parent, sources))
    config = _first(folders, lambda folder: (folder / CONFIG).is_file())
    if config is None:
        return None
    tokenizer = _first(folders, lambda folder: bool(_tokenizer_files(folder))) or config
    standard = config == path.parent and is_standard(path.name)
    return ModelFiles(ModelPlace(str(config)), ModelPlace(str(tokenizer)), standard)


def config_digest(place: ModelPlace) -> str:
    """A digest of config.json, or the commit of the hub repository."""
    if place.on_hub:
        return _commit(place)
    if place.gguf:
        return _header_digest(Path(place.name) / place.gguf)
    return _digest([Path(place.name) / CONFIG])


def tokenizer_digest(place: ModelPlace) -> str:
    """A digest of the tokenizer's files, or the commit of the hub repository."""
    if place.on_hub:
        return _commit(place)
    if place.gguf:
        return _header_digest(Path(place.name) / place.gguf)
    return _digest(_tokenizer_files(Path(place.name)))


def is_standard(name: str) -> bool:
    """Whether from_pretrained looks for weights of this file name."""
    return _STANDARD_WEIGHTS.fullmatch(name) is not None


def _folders_above(folder: Path, sources: Sequence[str]) -> Iterable[Path]:
    """The folder and those above it, up to one above the innermost named folder that contains it."""
    named = [Path(source).absolute() for source in sources if Path(source).is_dir()]
    containing = [top for top in named if folder.is_relative_to(top)]
    top = max(containing, key=lambda path: len(path.parts), default=folder)
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top.parent))]


def _first(folders: Iterable[Path], suits: Callable[[Path], bool]) -> Path | None:
    return next((folder for folder in folders if suits(folder)), None)


def _tokenizer_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if _TOKENIZER_FILE.fullmatch(file.name))


def _digest(files: Iterable[Path]) -> str:
    result = hashlib.sha256()
    for file in files:
        result.update(f"{file.name}\n{file.stat().st_size}\n".encode())
        result.update(file.read_bytes())
    return result.hexdigest()[:16]


def _header_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.sha256(stream.read(_GGUF_HEADER)).hexdigest()[:16]


def _commit(place: ModelPlace) -> str:
    """The commit that a revision of a hub repository points to, from the cache if the hub is offline."""
    hub = require("huggingface_hub", "hf", "loading a model from the hub")
    errors = require("huggingface_hub.errors", "hf", "loading a model from the hub")
    for file in (CONFIG, "tokenizer_config.json", "tokenizer.json"):
        try:
            parts = Path(hub.hf_hub_download(place.name, file, **place.options)).parts
            return parts[parts.index("snapshots") + 1]
        except errors.EntryNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ModelError(
                f"cannot read {place} from the hub: {first_line(error)}; check the name (there is no folder "
                f"{place.name} here)"
            ) from None
    raise ModelError(f"{place} has neither {CONFIG} nor a tokenizer")
