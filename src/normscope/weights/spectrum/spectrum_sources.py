"""What `normscope spectrum` is given: a series of checkpoints, or one model, and what its config says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from normscope.checkpoints.series.series import (
    CheckpointSeries,
    CheckpointSource,
    list_sources,
    open_series,
)
from normscope.checkpoints.storage import hub
from normscope.errors import NormscopeError
from normscope.weights.scan.scan import ScanConfig

if TYPE_CHECKING:
    from torch import nn


CONFIG = "config.json"


@dataclass(frozen=True)
class SpectrumSource:
    """The checkpoints, the content of the model's config.json ({} without one), and if it is one model."""

    series: CheckpointSeries
    document: Mapping[str, Any] = field(default_factory=dict)
    single: bool = False


def find_source(
    source: CheckpointSource | Sequence[CheckpointSource] | nn.Module, config: ScanConfig
) -> SpectrumSource:
    """The checkpoints of a series, of a hub id, of a single checkpoint, or a module as one.

    `my_model.py:build` is the module that the function returns.
    """
    listed = isinstance(source, (str, os.PathLike, Sequence))
    if not listed and hasattr(source, "named_parameters"):
        return _live(source)
    from normscope.network.places.source_paths import is_build_reference, is_hub_id

    sources = list_sources(source)  # type: ignore[arg-type]
    if len(sources) == 1 and is_build_reference(sources[0]):
        return _built(sources[0])
    named = [f"{hub.SCHEME}{name}" if "/" in name and is_hub_id(name) else name for name in sources]
    series = open_series(
        named, steps=config.steps, revisions=config.revisions, pattern=config.pattern, default_step=0
    )
    return SpectrumSource(series, config_of(series), len(series.entries) == 1)


def _live(module: Any) -> SpectrumSource:
    from normscope.weights.spectrum.module_checkpoint import module_document, module_series

    return SpectrumSource(module_series(module), module_document(module), single=True)


def _built(reference: str) -> SpectrumSource:
    from normscope.network.loading.build_functions import build_model
    from normscope.network.places.placement import Placement

    return _live(build_model(reference, Placement(device="cpu"))[0])


def config_of(series: CheckpointSeries) -> Mapping[str, Any]:
    """The config.json beside the last checkpoint of a series, or above it; {} without one."""
    from normscope.network.places.model_configs import config_document
    from normscope.network.places.model_places import find_files

    if not series.entries:
        return {}
    source = series.entries[-1].source
    if source.startswith(hub.SCHEME):
        return _config_on_hub(source)
    try:
        files = find_files(source, series.sources)
    except NormscopeError:
        return {}
    return (config_document(files.config) if files is not None else None) or {}


def _config_on_hub(source: str) -> Mapping[str, Any]:
    """The config.json in the folder of a file on the hub, read as checkpoints are."""
    address = hub.parse_address(source)
    folder = hub.open_folder(replace(address, folder=address.folder.rpartition("/")[0]))
    if CONFIG not in folder.names():
        return {}
    file = folder.file(CONFIG)
    try:
        found = json.loads(file.peek(0, file.size))
    except ValueError:
        return {}
    finally:
        file.close()
    return found if isinstance(found, dict) else {}
