"""The config of a model as transformers reads it, also where the file does not name the family."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.errors import ModelError
from normscope.network.places.model_family import find_family
from normscope.network.places.model_places import CONFIG, ModelPlace
from normscope.network.places.name_fitting import Shapes
from normscope.network.places.placement import first_line
from normscope.network.places.stored_weights import stored_shapes
from normscope.network.running.forward_failures import OTHER_INPUTS
from normscope.plugins import require


@dataclass(frozen=True)
class ModelConfigFile:
    """A config of transformers, and what is to be said about it."""

    settings: Any
    remarks: tuple[str, ...] = ()

    def check_takes_text(self, place: ModelPlace) -> None:
        """ModelError if the model of this config takes images or sound, and no tokens."""
        package = transformers_package()
        kinds = package.MODEL_MAPPING.get(type(self.settings), ())
        for kind in kinds if isinstance(kinds, (tuple, list)) else (kinds,):
            names = inspect.signature(kind.forward).parameters
            taken = [name for name in OTHER_INPUTS if name in names]
            if "input_ids" not in names and taken:
                raise ModelError(
                    f"{place}: {kind.__name__} takes {taken[0]}, not text: give it its inputs in a Python "
                    "file whose build() returns (model, batches), as in my_model.py:build"
                )


def read_config(place: ModelPlace, shapes: Callable[[], Shapes] | None = None) -> ModelConfigFile:
    """Read a model's config; a family that it does not name is found by its tensors.

    `shapes` gives those of the weights, if they are not beside the config.
    """
    if (found := inferred_config(place, shapes)) is not None:
        return found
    package = transformers_package()
    with quiet():
        try:
            return ModelConfigFile(package.AutoConfig.from_pretrained(place.name, **place.options))
        except Exception as error:  # a config is data of others: it can fail in any way
            raise ModelError(cannot_load(place, error)) from error


def inferred_config(place: ModelPlace, shapes: Callable[[], Shapes] | None = None) -> ModelConfigFile | None:
    """The config of a file that does not name its family; None if it does."""
    raw = _unnamed(place)
    if raw is None:
        return None
    package = transformers_package()
    stored = shapes() if shapes else stored_shapes(place)
    with quiet():
        family = find_family(package, raw, stored, str(place))
        try:
            settings = package.CONFIG_MAPPING[family.model_type].from_dict(dict(raw))
        except Exception as error:
            raise ModelError(cannot_load(place, error)) from error
    return ModelConfigFile(settings, (family.remark,))


def _unnamed(place: ModelPlace) -> Mapping[str, Any] | None:
    """The content of a config.json that does not name its family; None if it does, or cannot be read."""
    found = config_document(place)
    named = found is None or found.get("model_type") or found.get("auto_map")
    return None if named else found


def config_document(place: ModelPlace) -> Mapping[str, Any] | None:
    """The content of a config.json, as it is; None if there is none that can be read."""
    if place.gguf:
        return None
    try:
        path = Path(place.name) / place.subfolder / CONFIG if not place.on_hub else _downloaded(place)
        found = json.loads(path.read_text("utf-8"))
    except Exception:  # transformers will say what is wrong
        return None
    return found if isinstance(found, dict) else None


def _downloaded(place: ModelPlace) -> Path:
    hub = require("huggingface_hub", "hf", "loading a model from the hub")
    return Path(hub.hf_hub_download(place.name, CONFIG, **place.options))


def cannot_load(place: ModelPlace, error: Exception) -> str:
    """What to say if transformers cannot load a model."""
    if place.gguf:
        return (
            f"transformers cannot load {place}: {first_line(error)}; use the original checkpoint, or load it "
            f"into a model of your own (my_model.py:build {place})"
        )
    if place.on_hub:
        advice = f"check the name (there is no folder {place.name} here), or give a local folder"
    else:
        advice = "check that its files are complete"
    return f"cannot load a model from {place}: {first_line(error)}; {advice}"


def transformers_package() -> Any:
    """The transformers package; MissingExtra if it is not installed."""
    return require("transformers", "hf", "loading a Hugging Face model")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' progress bars and messages while loading, also GGUF's own bar."""
    logging = transformers_package().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
