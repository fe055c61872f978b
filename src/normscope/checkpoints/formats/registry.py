"""The known checkpoint formats, built in or added by other packages; each recognises its files by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from normscope.checkpoints.base import Checkpoint, File, Folder
from normscope.checkpoints.formats.dcp import is_dcp, open_dcp
from normscope.checkpoints.formats.flax.flax_files import is_flax, open_flax
from normscope.checkpoints.formats.gguf import is_gguf, open_gguf
from normscope.checkpoints.formats.hdf5.keras_files import is_hdf5, is_keras, open_hdf5, open_keras
from normscope.checkpoints.formats.llama2c import is_llama2c, open_llama2c
from normscope.checkpoints.formats.npz import is_npz, open_npz
from normscope.checkpoints.formats.onnx.onnx_files import is_onnx, open_onnx
from normscope.checkpoints.formats.orbax.orbax import is_orbax, open_orbax
from normscope.checkpoints.formats.other_layouts import layout_of
from normscope.checkpoints.formats.ranks.deepspeed import is_deepspeed, open_deepspeed
from normscope.checkpoints.formats.ranks.megatron import is_megatron, open_megatron
from normscope.checkpoints.formats.ranks.megatron_dist import is_megatron_dist, open_megatron_dist
from normscope.checkpoints.formats.safetensors import is_safetensors, open_safetensors
from normscope.checkpoints.formats.tensorflow.object_graph import is_saved_model
from normscope.checkpoints.formats.tensorflow.tensor_bundle import open_saved_model
from normscope.checkpoints.formats.torch.archives import is_pickle, is_torch_zip
from normscope.checkpoints.formats.torch.pickles import open_legacy, open_torch_zip
from normscope.checkpoints.limits import open_checked, reading
from normscope.errors import CorruptCheckpoint, PluginError, UnknownFormat
from normscope.plugins import Plugin, plugins


@dataclass(frozen=True)
class FileFormat:
    """A format whose checkpoints are single files.

    `recognise` looks at the content. A file whose name ends with one of `suffixes` (such as
    ".gguf") is taken for a checkpoint, so that a damaged one is an error and not overlooked.
    """

    name: str
    suffixes: tuple[str, ...]
    recognise: Callable[[File], bool]
    open: Callable[[File], Checkpoint]


_GIT_LFS = b"version https://git-lfs"

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")

FORMATS = (
    FileFormat("safetensors", (".safetensors",), is_safetensors, open_safetensors),
    FileFormat("PyTorch", (".pt", ".pth", ".bin", ".ckpt"), is_torch_zip, open_torch_zip),
    FileFormat("PyTorch (legacy pickle)", _PICKLES, is_pickle, open_legacy),
    FileFormat("NumPy .npz", (".npz",), is_npz, open_npz),
    FileFormat("GGUF", (".gguf",), is_gguf, open_gguf),
    FileFormat("llama2.c", (".bin",), is_llama2c, open_llama2c),
    FileFormat("Flax (msgpack)", (".msgpack",), is_flax, open_flax),
    FileFormat("Keras 3 (.keras)", (".keras",), is_keras, open_keras),
    FileFormat("Keras weights in HDF5", (".h5", ".hdf5"), is_hdf5, open_hdf5),
    FileFormat("ONNX", (".onnx",), is_onnx, open_onnx),
)


@dataclass(frozen=True)
class FolderFormat:
    """A format whose checkpoints are folders."""

    name: str
    recognise: Callable[[Folder], bool]
    open: Callable[[Folder], Checkpoint]


FOLDER_FORMATS = (
    FolderFormat("Megatron (torch_dist)", is_megatron_dist, open_megatron_dist),
    FolderFormat("torch distributed checkpoint (DCP)", is_dcp, open_dcp),
    FolderFormat("Orbax/T5X", is_orbax, open_orbax),
    FolderFormat("Megatron (mp_rank folders)", is_megatron, open_megatron),
    FolderFormat("TensorFlow SavedModel", is_saved_model, open_saved_model),
    FolderFormat("DeepSpeed (ZeRO, GPT-NeoX)", is_deepspeed, open_deepspeed),
)


def file_formats() -> tuple[FileFormat, ...]:
    """The built-in formats of single files, then those that other packages add."""
    return (*FORMATS, *(format for format in _added() if isinstance(format, FileFormat)))


def folder_formats() -> tuple[FolderFormat, ...]:
    """The built-in formats of folders, then those that other packages add."""
    return (*FOLDER_FORMATS, *(format for format in _added() if isinstance(format, FolderFormat)))


def _added() -> list[FileFormat | FolderFormat]:
    return [_checked(plugin) for plugin in plugins("formats")]


def _checked(plugin: Plugin) -> FileFormat | FolderFormat:
    if isinstance(plugin.value, FileFormat | FolderFormat):
        return plugin.value
    raise PluginError(
        f"the format {plugin.name!r} of the package {plugin.package} should be a FileFormat or "
        f"a FolderFormat, but is a {type(plugin.value).__name__}; repair or uninstall that package"
    )


def file_suffixes() -> tuple[str, ...]:
    """The endings of names by which files are taken for checkpoints, in lower case."""
    return tuple({suffix.lower() for format in file_formats() for suffix in format.suffixes})


def known_formats() -> str:
    """The names of all formats, as a list in a sentence."""
    grouped = ("sharded safetensors, PyTorch and Flax", "TensorFlow (.index with .data files)")
    return ", ".join([*(f.name for f in file_formats()), *grouped, *(f.name for f in folder_formats())])


def recognise(file: File) -> FileFormat | None:
    """The first format that recognises the content of the file."""
    with reading(file.name):
        return next((format for format in file_formats() if format.recognise(file)), None)


def recognise_folder(folder: Folder) -> FolderFormat | None:
    """The first format that recognises the folder."""
    with reading(folder.name):
        return next((format for format in folder_formats() if format.recognise(folder)), None)


def open_file(file: File) -> Checkpoint:
    """Open the checkpoint in a file, whatever its name; UnknownFormat if no format recognises it."""
    if file.size == 0:
        raise CorruptCheckpoint(f"{file.name} is empty. Copy or save it again.")
    found = recognise(file)
    if found is not None:
        opened = open_checked(lambda: found.open(file), file.name)
        file.header_read()
        return opened
    if file.name.lower().endswith(".safetensors"):
        return open_checked(
            lambda: open_safetensors(file), file.name
        )  # raises an error that says what is wrong with the header
    if bytes(file.peek(0, min(len(_GIT_LFS), file.size))) == _GIT_LFS:
        raise UnknownFormat(
            f"{file.name} is only a pointer to the file (Git LFS); fetch it with 'git lfs pull'."
        )
    if (layout := layout_of(file)) is not None:
        raise UnknownFormat(f"{file.name} is {layout.what}, which cannot be read here: {layout.instead}.")
    raise UnknownFormat(
        f"{file.name} is not a checkpoint in any known format; its first bytes are "
        f"{file.peek(0, min(8, file.size))!r}. Known formats: {known_formats()}."
    )
