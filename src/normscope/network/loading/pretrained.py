"""Models and tokenizers that transformers or the lab load."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from normscope.errors import ModelError
from normscope.network.loading.model_places import CONFIG, ModelPlace, find_place
from normscope.network.loading.placement import Placement, first_line
from normscope.plugins import require
from normscope.words import some

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.index.json")

# Named, not imported: the lab imports this package.
LOADERS = {"normscope-lab": "normscope.lab.training.checkpointing:load_model"}

PlaceLike: TypeAlias = str | os.PathLike[str] | ModelPlace


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, and warnings about its weights."""

    model: nn.Module
    warnings: tuple[str, ...] = ()


def load_model(place: PlaceLike, placement: Placement = Placement()) -> nn.Module:
    """Load a Hugging Face model without its head, since hidden states are measured, or a model of the lab."""
    return load_pretrained(place, placement).model


def load_pretrained(place: PlaceLike, placement: Placement = Placement()) -> LoadedModel:
    """Load a model as `load_model` does, with warnings about weights that its files lack."""
    found = _checked(place)
    if (own := _own_loader(found)) is not None:
        return LoadedModel(placement.place(own(found.name)).eval())
    auto = _transformers().AutoModel
    return _load(auto.from_pretrained, found.name, found, placement, **found.options)


def read_architectures(place: PlaceLike) -> list[str]:
    """The names of the classes that a config says its weights belong to."""
    found = _checked(place)
    if _own_loader(found) is not None:
        return ["Transformer"]
    return list(getattr(_read_config(found), "architectures", None) or [])


def load_class(name: str, place: PlaceLike, placement: Placement) -> LoadedModel | None:
    """Load a model as a class of transformers; None if transformers does not have the class."""
    kind = getattr(_transformers(), name, None)
    if kind is None:
        return None
    found = _checked(place)
    return _load(kind.from_pretrained, found.name, found, placement, **found.options)


def load_from_tensors(config: ModelPlace, tensors: Mapping[str, Tensor], placement: Placement) -> LoadedModel:
    """Build the model of a config and load tensors, by their names in the checkpoint, into it.

    A parameter that is not among them is a ModelError: names of another format may match none.
    """
    if _own_loader(config) is not None:
        raise ModelError(f"{config}: a model of the lab needs model.safetensors beside its config.json")
    transformers = _transformers()
    settings = _read_config(config)
    with torch.device("meta"):
        kind = type(transformers.AutoModel.from_config(settings))
    loaded = _load(kind.from_pretrained, None, config, placement, config=settings, state_dict=dict(tensors))
    if loaded.warnings:
        raise ModelError(f"the checkpoint does not fit the model of {config}/{CONFIG}: {loaded.warnings[0]}")
    return loaded


def _load(
    from_pretrained: Callable[..., Any],
    name: str | None,
    place: ModelPlace,
    placement: Placement,
    **options: Any,
) -> LoadedModel:
    dtype = placement.torch_dtype() or "auto"
    with _quiet(_transformers()):
        try:
            model, report = from_pretrained(name, dtype=dtype, output_loading_info=True, **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelError(_cannot_load(place, error)) from error
    return LoadedModel(placement.place(model).eval(), tuple(_missing(report["missing_keys"])))


def _missing(names: Any) -> Iterator[str]:
    """A warning if parameters are missing, except a pooler: it does not affect hidden states."""
    missing = sorted(name for name in names if "pooler" not in name.split("."))
    if missing:
        yield f"the checkpoint lacks {some(missing)}: these parameters have random values"


def check_model(place: PlaceLike) -> None:
    """Raise if there is no model to load; this reads the config and no weights."""
    found = _checked(place)
    if _own_loader(found) is None:
        _read_config(found)


def load_tokenizer(place: PlaceLike) -> Any:
    """Load the tokenizer in a folder or hub repository."""
    found = place if isinstance(place, ModelPlace) else find_place(place)
    transformers = _transformers()
    with _quiet(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(found.name, **found.options)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
            raise ModelError(_no_tokenizer(found, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # transformers makes one even without any files
        raise ModelError(_no_tokenizer(found, "its vocabulary is empty"))
    return tokenizer


def _checked(place: PlaceLike) -> ModelPlace:
    """The place, after checking that a local folder contains a config and weights."""
    found = place if isinstance(place, ModelPlace) else find_place(place)
    if found.on_hub:
        return found
    folder = Path(found.name)
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is not a Hugging Face model: save one there with "
            "save_pretrained(), or write a Python file whose build() returns (model, batches)"
        )
    if not any(True for pattern in _WEIGHTS for _ in folder.glob(pattern)):
        raise ModelError(
            f"{folder} has a config.json but no weights: expected model.safetensors or pytorch_model.bin "
            "beside it"
        )
    return found


def _own_loader(place: ModelPlace) -> Callable[[str], nn.Module] | None:
    """The loader of a folder that transformers does not know, by the model_type in its config.json."""
    config = Path(place.name) / CONFIG
    if place.on_hub or not config.is_file():
        return None
    try:
        kind = json.loads(config.read_text("utf-8")).get("model_type")
    except (ValueError, AttributeError):
        return None
    if kind not in LOADERS:
        return None
    module, _, name = LOADERS[kind].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _read_config(place: ModelPlace) -> Any:
    transformers = _transformers()
    with _quiet(transformers):
        try:
            return transformers.AutoConfig.from_pretrained(place.name, **place.options)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(_cannot_load(place, error)) from error


def _cannot_load(place: ModelPlace, error: Exception) -> str:
    advice = "check the name, or give a local folder" if place.on_hub else "check that its files are complete"
    return f"cannot load a model from {place}: {first_line(error)}; {advice}"


def _no_tokenizer(place: ModelPlace, reason: object) -> str:
    return (
        f"cannot find a usable tokenizer in {place} ({first_line(reason)}): name the one the model was "
        "trained with (--tokenizer FOLDER_OR_ID)"
    )


def _transformers() -> Any:
    return require("transformers", "hf", "loading a Hugging Face model")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Suppress transformers' progress bars and messages while loading."""
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
