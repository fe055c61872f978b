"""Models and tokenizers that transformers or the lab load."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from normscope.checkpoints.arrays import read_tensor
from normscope.checkpoints.base import Checkpoint
from normscope.errors import ModelError, NormscopeError
from normscope.network.places.load_report import LoadReport, check_load, missing_body
from normscope.network.places.model_configs import (
    cannot_load,
    inferred_config,
    quiet,
    read_config,
    transformers_package,
)
from normscope.network.places.model_places import CONFIG, ModelPlace, find_place
from normscope.network.places.name_fitting import Shapes, find_prefix, without_prefix
from normscope.network.places.placement import Placement, first_line
from normscope.network.places.stored_weights import open_stored, stored_shapes
from normscope.words import some

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.index.json")
_FAILURES = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, ImportError)

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
    """Load a model as `load_model` does, with warnings about what its files lack and have beside.

    Names that from_pretrained does not recognise are tried again without their prefix. A parameter that is
    still not found is a ModelError: it would have random values.
    """
    found = _checked(place)
    if (own := _own_loader(found)) is not None:
        return LoadedModel(placement.place(own(found.name)).eval())
    config = read_config(found)
    auto = transformers_package().AutoModel
    known = {"config": config.settings} if config.remarks else {}
    try:
        model, report = _load(auto.from_pretrained, found.name, found, placement, **known, **found.options)
        complete = not missing_body(model, report)
    except ModelError as error:
        if found.gguf or not isinstance(error.__cause__, _FAILURES):
            raise
        return _second_try(found, placement, error)
    if not complete and not found.gguf:
        return _second_try(found, placement, None)
    words = check_load(model, report, str(found), lambda: stored_shapes(found))
    return LoadedModel(model, (*config.remarks, *_gguf_words(found), *words))


def read_architectures(place: PlaceLike) -> list[str]:
    """The names of the classes that a config says its weights belong to."""
    found = _checked(place)
    if _own_loader(found) is not None:
        return ["Transformer"]
    return list(getattr(read_config(found).settings, "architectures", None) or [])


def load_class(name: str, place: PlaceLike, placement: Placement) -> LoadedModel | None:
    """Load a model as a class of transformers, with a warning if the files lack something of it.

    None if transformers does not have the class.
    """
    kind = getattr(transformers_package(), name, None)
    if kind is None:
        return None
    found = _checked(place)
    config = read_config(found)
    known = {"config": config.settings} if config.remarks else {}
    model, report = _load(kind.from_pretrained, found.name, found, placement, **known, **found.options)
    missing = [name for name in report.missing if "pooler" not in name.split(".")]
    return LoadedModel(model, (f"the checkpoint lacks {some(missing)}",) if missing else ())


def load_from_tensors(config: ModelPlace, tensors: Mapping[str, Tensor], placement: Placement) -> LoadedModel:
    """Build the model of a config and load tensors, by their names in the checkpoint, into it.

    A prefix that all names of the network have is removed. A parameter that is not among them is a
    ModelError: names of another format may match none.
    """
    if _own_loader(config) is not None:
        raise ModelError(f"{config}: a model of the lab needs model.safetensors beside its config.json")
    shapes: Shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    found = read_config(config, lambda: shapes)
    with torch.device("meta"):
        empty = transformers_package().AutoModel.from_config(found.settings)
    renamed, words = _without_prefix(tensors, shapes, empty)
    options = {"config": found.settings, "state_dict": renamed}
    model, report = _load(type(empty).from_pretrained, None, config, placement, **options)
    words += check_load(model, report, str(config), lambda: {n: tuple(t.shape) for n, t in renamed.items()})
    return LoadedModel(model, (*found.remarks, *words))


def load_checkpoint(config: ModelPlace, checkpoint: Checkpoint, placement: Placement) -> LoadedModel:
    """Build the model of a config, with weights from any checkpoint that a scan can read."""
    tensors = {name: read_tensor(checkpoint, name) for name in checkpoint.tensors}
    loaded = load_from_tensors(config, tensors, placement)
    return replace(loaded, warnings=(*checkpoint.notes, *loaded.warnings))


def _second_try(place: ModelPlace, placement: Placement, failure: ModelError | None) -> LoadedModel:
    """Load what our own reader finds, without prefixes; if that fails, too, raise the first error."""
    try:
        with closing(open_stored(place)) as checkpoint:
            return load_checkpoint(place, checkpoint, placement)
    except NormscopeError as error:
        raise (failure or error) from error.__cause__


def _without_prefix(
    tensors: Mapping[str, Tensor], shapes: Shapes, model: nn.Module
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    expected = {name: tuple(value.shape) for name, value in model.named_parameters(remove_duplicate=False)}
    prefix = find_prefix(shapes, expected)
    if prefix is None:
        return dict(tensors), ()
    renamed = {without_prefix(name, prefix): value for name, value in tensors.items()}
    if len(renamed) < len(tensors):
        raise ModelError(f"two tensors of the checkpoint have the same name without the prefix {prefix!r}")
    changed = [(name, without_prefix(name, prefix)) for name in tensors]
    removed = next((name[: -len(new)] for name, new in changed if name.endswith(new) and name != new), "")
    return renamed, (f"names in the checkpoint begin with {removed!r}, which was removed",) if removed else ()


def _load(
    from_pretrained: Callable[..., Any],
    name: str | None,
    place: ModelPlace,
    placement: Placement,
    **options: Any,
) -> tuple[nn.Module, LoadReport]:
    dtype = placement.torch_dtype() or ("auto" if not place.gguf else None)
    wanted = {"dtype": dtype, "output_loading_info": True, "ignore_mismatched_sizes": True}
    with quiet():
        try:
            model, report = from_pretrained(name, **wanted, **options)
        except (
            Exception
        ) as error:  # reading a damaged file, or building a strange config, can fail in any way
            raise ModelError(cannot_load(place, error)) from error
    mismatched = tuple(sorted((str(each[0]), *each[1:3]) for each in report["mismatched_keys"]))
    found = LoadReport(tuple(report["missing_keys"]), tuple(report["unexpected_keys"]), mismatched)
    return placement.place(model).eval(), found


def _gguf_words(place: ModelPlace) -> tuple[str, ...]:
    if not place.gguf:
        return ()
    with closing(open_stored(place)) as checkpoint:
        notes = "; ".join(checkpoint.notes)
    rounding = ": what is measured includes the rounding of the quantisation" if notes else ""
    return (f"the weights are read from GGUF{', ' if notes else ''}{notes}{rounding}",)


def check_model(place: PlaceLike) -> None:
    """Raise if there is no model to load, or one that takes no text; this reads the config and no weights."""
    found = _checked(place)
    if _own_loader(found) is None:
        read_config(found).check_takes_text(found)


def load_tokenizer(place: PlaceLike) -> Any:
    """Load the tokenizer in a folder, a GGUF file or a hub repository."""
    found = place if isinstance(place, ModelPlace) else find_place(place)
    options: dict[str, Any] = dict(found.options)
    with suppress(ModelError):  # a tokenizer's folder may have the config of anything
        if (config := inferred_config(found)) is not None:
            options["config"] = config.settings
    with quiet():
        try:
            tokenizer = transformers_package().AutoTokenizer.from_pretrained(found.name, **options)
        except _FAILURES as error:
            raise ModelError(_no_tokenizer(found, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # transformers makes one even without any files
        raise ModelError(_no_tokenizer(found, "its vocabulary is empty"))
    return tokenizer


def _checked(place: PlaceLike) -> ModelPlace:
    """The place, after checking that a local folder contains a config and weights."""
    found = place if isinstance(place, ModelPlace) else find_place(place)
    if found.on_hub or found.gguf:
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
    if place.on_hub or place.gguf or not config.is_file():
        return None
    try:
        kind = json.loads(config.read_text("utf-8")).get("model_type")
    except (ValueError, AttributeError, RecursionError):
        return None
    if kind not in LOADERS:
        return None
    module, _, name = LOADERS[kind].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _no_tokenizer(place: ModelPlace, reason: object) -> str:
    return (
        f"cannot find a usable tokenizer in {place} ({first_line(reason)}): name the one the model was "
        "trained with (--tokenizer FOLDER_OR_ID), or give token ids (--ids FILE)"
    )
