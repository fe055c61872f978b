"""The models behind the arguments of a command: one model, a series, or a program and its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.errors import UsageError
from normscope.network.loading.build_functions import built_models
from normscope.network.loading.models import SeriesOptions, StudiedModel, StudyText
from normscope.network.loading.pretrained_series import pretrained_models
from normscope.network.places.placement import Placement
from normscope.network.places.source_paths import check_sources, is_build_reference


def find_models(
    sources: Sequence[str], text: StudyText, placement: Placement, options: SeriesOptions = SeriesOptions()
) -> list[StudiedModel]:
    """Find the models behind the arguments of a command, sorted by stage and step.

    A folder with a config.json, or a hub id, is one model; a folder of such folders is a series, with
    the steps and stages that a scan finds. `file.py:build` is the user's own model; checkpoints named
    after it, wherever a scan could read them, are loaded into it one after the other.
    """
    if not sources:
        raise UsageError(
            "expected a model: a folder, a hub id, or a Python file and function such as my_model.py:build"
        )
    check_sources(sources)
    if is_build_reference(sources[0]):
        return built_models(sources[0], sources[1:], placement, options)
    return pretrained_models(sources, text, placement, options)
