"""The settings of quantisation that lie beside a checkpoint, in config.json and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normscope.checkpoints.base import Folder
from normscope.checkpoints.formats.json_headers import parse_object

_LIMIT = 20_000_000
_KEYS = ("quantization_config", "compression_config")
_NESTED = ("text_config", "llm_config", "language_config")
_OWN_FILES = ("quantize_config.json", "quant_config.json")
"""AutoGPTQ and AutoAWQ wrote files of their own, which are the settings."""


def read_quantization_config(folder: Folder) -> Mapping[str, Any]:
    """The `quantization_config` beside a checkpoint; empty if there is none."""
    names = folder.names()
    if "config.json" in names:
        config = _read(folder, "config.json")
        insides = (config, *(config.get(key) for key in _NESTED))
        settings = (inside.get(key) for inside in insides if isinstance(inside, dict) for key in _KEYS)
        found: Mapping[str, Any] | None = next((each for each in settings if isinstance(each, dict)), None)
        if found is not None:
            return found
    return next((_read(folder, name) for name in _OWN_FILES if name in names), {})


def _read(folder: Folder, name: str) -> dict[str, Any]:
    file = folder.file(name)
    return parse_object(file.peek(0, file.size), file.name) if file.size <= _LIMIT else {}
