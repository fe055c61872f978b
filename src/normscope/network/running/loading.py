"""Models and their tokenizers, from a Hugging Face folder, a hub id, or a Python file that builds one."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normscope.errors import MissingExtra, ModelError, UsageError
from normscope.network.running.batches import Batch, as_batches, to_device

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.index.json")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")


# Named, not imported: the lab is built on this package, not the other way round.
LOADERS = {"normscope-lab": "normscope.lab.training.checkpointing:load_model"}


@dataclass(frozen=True)
class Placement:
    """Where a model runs and in which precision; None leaves it to the machine and to the model."""

    device: str | None = None
    dtype: str | None = None

    def torch_device(self) -> torch.device:
        """The device asked for, or the best one there is: cuda, then mps, then cpu."""
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"device {self.device!r} cannot be used here ({_first_line(error)}): give cuda, mps or cpu"
            ) from None

    def torch_dtype(self) -> torch.dtype | None:
        """The floating-point dtype asked for."""
        if self.dtype is None:
            return None
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise UsageError(f"dtype {self.dtype!r} is not one of float32, float64, bfloat16, float16")
        return dtype

    def place(self, model: nn.Module) -> nn.Module:
        """The model, moved."""
        return model.to(device=self.torch_device(), dtype=self.torch_dtype())


def is_build_reference(source: str) -> bool:
    """Whether a source is `file.py:function`."""
    path, _, function = source.rpartition(":")
    return path.endswith(".py") and function.isidentifier()


def build_model(source: str, placement: Placement) -> tuple[nn.Module, list[Batch]]:
    """Run `file.py:build`, the user's own code, which returns a model and its batches."""
    path, _, name = source.rpartition(":")
    function = _function(Path(path), name)
    result = function()
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], nn.Module):
        raise ModelError(
            f"{source} returned {type(result).__name__}; expected a tuple (model, batches): the torch module "
            "and a list of what it is called with"
        )
    model, batches = result
    device, dtype = placement.torch_device(), placement.torch_dtype()
    return placement.place(model), [to_device(batch, device, dtype) for batch in as_batches(batches)]


def _function(path: Path, name: str) -> Callable[[], Any]:
    if not path.is_file():
        raise UsageError(f"no file at {path}: expected a Python file with a function {name}()")
    spec = importlib.util.spec_from_file_location(f"normscope_build_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles inside look their module up
    with _on_path(path.parent):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{path} has no function {name}(): expected one that returns (model, batches)")
    return function  # type: ignore[no-any-return]


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it would when run."""
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.resolve()))


def load_model(source: str | os.PathLike[str], placement: Placement = Placement()) -> nn.Module:
    """A Hugging Face model without its head, since hidden states are what is measured; or one of the lab."""
    place, revision = _located(str(source))
    if (own := _own_loader(place)) is not None:
        return placement.place(own(place)).eval()
    transformers = _transformers()
    with _quiet(transformers):
        try:
            options = {"dtype": placement.torch_dtype() or "auto", **revision}
            model = transformers.AutoModel.from_pretrained(place, **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelError(_cannot_load(place, error)) from error
    return placement.place(model).eval()


def _own_loader(place: str) -> Callable[[str], nn.Module] | None:
    """What loads a folder that transformers does not know, by the model_type in its config.json."""
    config = Path(place) / "config.json"
    if not config.is_file():
        return None
    try:
        kind = json.loads(config.read_text("utf-8")).get("model_type")
    except (ValueError, AttributeError):
        return None
    if kind not in LOADERS:
        return None
    module, _, name = LOADERS[kind].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def check_model(source: str | os.PathLike[str]) -> None:
    """Raise if there is no model to load; a config is read, no weights."""
    place, revision = _located(str(source))
    if _own_loader(place) is not None:
        return
    transformers = _transformers()
    with _quiet(transformers):
        try:
            transformers.AutoConfig.from_pretrained(place, **revision)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(_cannot_load(place, error)) from error


def load_tokenizer(source: str | os.PathLike[str]) -> Any:
    """The tokenizer that lies beside a model."""
    place, revision = _located(str(source))
    transformers = _transformers()
    with _quiet(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, **revision)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
            raise ModelError(_no_tokenizer(place, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # what transformers makes out of no files at all
        raise ModelError(_no_tokenizer(place, "its vocabulary is empty"))
    return tokenizer


def _located(source: str) -> tuple[str, dict[str, str]]:
    """A folder, or a hub id with an optional @revision; anything else is a wrong call."""
    folder = Path(source)
    if folder.is_dir():
        _check_folder(folder)
        return source, {}
    if folder.exists() or source.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(source):
        raise UsageError(
            f"{source} is no model: expected a Hugging Face folder (config.json and weights), a hub id such "
            "as gpt2 or organisation/name@revision, or a Python file and function such as my_model.py:build"
        )
    name, _, revision = source.partition("@")
    return name, {"revision": revision} if revision else {}


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is no Hugging Face model: save one there with "
            "save_pretrained(), or write a Python file whose build() returns (model, batches)"
        )
    if not any(True for pattern in _WEIGHTS for _ in folder.glob(pattern)):
        raise ModelError(
            f"{folder} has a config.json but no weights: expected model.safetensors or pytorch_model.bin "
            "beside it"
        )


def _cannot_load(place: str, error: Exception) -> str:
    advice = (
        "check the name, or give a local folder"
        if not Path(place).is_dir()
        else "check that its files are whole"
    )
    return f"cannot load a model from {place}: {_first_line(error)}; {advice}"


def _no_tokenizer(place: str, reason: object) -> str:
    return (
        f"cannot find a usable tokenizer in {place} ({_first_line(reason)}): give the one the model was "
        "trained with (--tokenizer FOLDER_OR_ID)"
    )


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf", "loading a Hugging Face model") from None
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no advice about heads on stderr while loading."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())
