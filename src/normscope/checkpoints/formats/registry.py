"""The formats that are known, each recognised by what is in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from normscope.checkpoints.base import Checkpoint, File, Folder
from normscope.checkpoints.formats.dcp import is_dcp, open_dcp
from normscope.checkpoints.formats.gguf import is_gguf, open_gguf
from normscope.checkpoints.formats.llama2c import is_llama2c, open_llama2c
from normscope.checkpoints.formats.npz import is_npz, open_npz
from normscope.checkpoints.formats.orbax.orbax import is_orbax, open_orbax
from normscope.checkpoints.formats.safetensors import is_safetensors, open_safetensors
from normscope.checkpoints.formats.torch.pickles import is_pickle, is_torch_zip, open_legacy, open_torch_zip
from normscope.errors import CorruptCheckpoint, UnknownFormat


@dataclass(frozen=True)
class FileFormat:
    """A checkpoint format of one file: how it is told from others, and what opens it."""

    name: str
    suffixes: tuple[str, ...]
    recognise: Callable[[File], bool]
    open: Callable[[File], Checkpoint]


FORMATS = (
    FileFormat("safetensors", (".safetensors",), is_safetensors, open_safetensors),
    FileFormat("PyTorch", (".pt", ".pth", ".bin", ".ckpt"), is_torch_zip, open_torch_zip),
    FileFormat("PyTorch (legacy pickle)", (".pt", ".pth", ".bin", ".ckpt", ".pkl"), is_pickle, open_legacy),
    FileFormat("NumPy .npz", (".npz",), is_npz, open_npz),
    FileFormat("GGUF", (".gguf",), is_gguf, open_gguf),
    FileFormat("llama2.c", (".bin",), is_llama2c, open_llama2c),
)


@dataclass(frozen=True)
class FolderFormat:
    """A checkpoint format that is a folder."""

    name: str
    recognise: Callable[[Folder], bool]
    open: Callable[[Folder], Checkpoint]


FOLDER_FORMATS = (
    FolderFormat("torch distributed checkpoint (DCP)", is_dcp, open_dcp),
    FolderFormat("Orbax/T5X", is_orbax, open_orbax),
)


def known_formats() -> str:
    """The formats' names, as a sentence lists them."""
    grouped = ("sharded safetensors and PyTorch", "TensorFlow (.index with .data files)")
    return ", ".join([*(f.name for f in FORMATS), *grouped, *(f.name for f in FOLDER_FORMATS)])


def recognise(file: File) -> FileFormat | None:
    """The format whose marks the file bears."""
    return next((format for format in FORMATS if format.recognise(file)), None)


def open_file(file: File) -> Checkpoint:
    """The checkpoint in a file, whatever its name; UnknownFormat if it bears no known marks."""
    if file.size == 0:
        raise CorruptCheckpoint(f"{file.name} is empty. Copy or save it again.")
    found = recognise(file)
    if found is not None:
        return found.open(file)
    claimed = next((f for f in FORMATS if file.name.lower().endswith(f.suffixes)), None)
    if claimed is not None and claimed.name == "safetensors":
        return claimed.open(file)  # its own error says what is wrong with the header
    raise UnknownFormat(
        f"{file.name} is not a checkpoint in any known format; its first bytes are "
        f"{file.peek(0, min(8, file.size))!r}. Known formats: {known_formats()}."
    )
