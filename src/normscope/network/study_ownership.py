"""A run file belongs to one series: whether the models of a study may be measured into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope.errors import AnotherSeries
from normscope.network.loading.models import StudiedModel
from normscope.network.places.source_paths import is_build_reference
from normscope.rows import step_key
from normscope.run import Run
from normscope.weights.series_identity import (
    RecordedSeries,
    outermost,
    parent,
    place,
    related,
    same_contents,
    set_places,
)


def claim_for_study(
    run: Run,
    sources: Sequence[str],
    models: Sequence[StudiedModel],
    notes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Refuse models that are not those of the run file's series, and record where they are.

    One checkpoint that the run file knows is enough; where there is none in common, the place decides.
    `notes` are those of an earlier study, if the caller has read them.
    """
    checkpoints = [source for source in sources if not is_build_reference(source)] or list(sources)
    given = [place(_address(source)) for source in checkpoints]
    recorded = RecordedSeries.of(run, notes)
    if recorded.known and not _fits(recorded, given, models):
        raise AnotherSeries(
            f"{run.path} is the run file of {recorded.name}, and {' and '.join(given)} is another series: "
            "choose another file with --run FILE"
        )
    with run.transaction():
        set_places(run, outermost((*recorded.places, *given)))


def _fits(recorded: RecordedSeries, given: Sequence[str], models: Sequence[StudiedModel]) -> bool:
    differing = 0
    for model in models:
        before = recorded.digests.get(step_key(model.stage, model.step))
        now = model.identify() if before else {}
        if before is None or not _comparable(now):
            continue
        if same_contents(now["checkpoint"], before):
            return True
        differing += 1
    if related(given, recorded.places):
        return differing <= 1  # a single one was replaced
    parents = [parent(each) for each in recorded.places]
    return not differing and all(parent(each) in parents for each in given)  # models named one by one


def _comparable(identity: dict[str, str]) -> bool:
    """Whether the identity has the digest of a checkpoint; on the hub, it is the commit instead."""
    return "checkpoint" in identity and identity["checkpoint"] != identity.get("config")


def _address(source: str) -> str:
    """A hub id, such as OWNER/NAME@REVISION, as a URL; anything else as it is."""
    local = "://" in source or is_build_reference(source) or Path(source.partition("@")[0]).exists()
    return source if local or any(mark in source for mark in "*?[") else f"hf://{source}"
