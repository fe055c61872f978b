"""Measurements of a network as rows of a run file, and which steps of a study are already done."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from normscope._version import __version__
from normscope.network.loading.models import StudiedModel
from normscope.network.measuring.attention_examples import AttentionExample
from normscope.network.measuring.heads import Heads
from normscope.network.measuring.homogeneity import Homogeneity
from normscope.network.measuring.joint import SaturationAndHeads
from normscope.network.measuring.saturation import Saturation
from normscope.network.step_predictions import (
    ABLATION_KIND,
    TASK_KIND,
    PredictionOptions,
    StepPredictions,
    save_predictions,
)
from normscope.rows import LIVE_PROBES, STUDY_NOTES, HeadRow, LayerMeasures, SaturationRow, step_key
from normscope.run import Run

RowType = TypeVar("RowType", SaturationRow, HeadRow)

_FOR_THE_READER = ("model", "warnings", "look_ahead", "command", "time", "versions")
"""Entries of a note that a measurement does not depend on."""

_ITS_MAPS = (
    "kind = 'attention' AND key IN "
    "(SELECT ? || '/' || module || '/' || head FROM head WHERE stage = ? AND step = ?)"
)
"""The attention maps of a step that is measured again, perhaps on another sentence."""


@contextmanager
def run_for_results(path: Path | None) -> Iterator[Run | None]:
    """The run file to write to, opened before the work begins; None if there is no path.

    If the work fails before anything is written, a file that was created here is deleted.
    """
    if path is None:
        yield None
        return
    existed = path.exists()
    with Run.create(path) as run:
        try:
            yield run
        except BaseException:
            if not existed and not run.query("SELECT 1 FROM artifact LIMIT 1"):
                run.close()
                path.unlink(missing_ok=True)
            raise


def saturation_rows(result: Saturation, step: int, stage: str = "") -> list[SaturationRow]:
    """One row per layer; if convergence was not checked (a single scale), it is recorded as False."""
    names = [field.name for field in fields(LayerMeasures)]
    rows = [
        SaturationRow(step=step, stage=stage, **{name: getattr(layer, name) for name in names})
        for layer in result.layers
    ]
    return [replace(row, converged=bool(row.converged)) for row in rows]


def head_rows(result: Heads, step: int, stage: str = "") -> list[HeadRow]:
    """One row per head."""
    return [HeadRow(step=step, stage=stage, **vars(head)) for head in result.heads]


class StudyRecord:
    """The steps of a study in a run file, each with a note of what was measured and how.

    A step is measured again only if its note has changed. Notes are read once, in one indexed
    query, and so are the rows of finished steps.
    """

    KIND = STUDY_NOTES

    def __init__(self, run: Run, settings: Mapping[str, Any], command: str = "") -> None:
        self._run, self._command = run, command
        self._settings = dict(settings)
        self.notes = run.artifacts(self.KIND)

    def note(self, model: StudiedModel) -> dict[str, Any]:
        """What a measurement depends on, and the name of the model."""
        return {**self._settings, **model.identify(), "model": model.label}

    def is_done(self, model: StudiedModel, note: Mapping[str, Any]) -> bool:
        """Whether this step was measured before, with the same checkpoint, tokenizer and settings."""
        before = self.notes.get(step_key(model.stage, model.step))
        return before is not None and _dependencies(before) == _dependencies(note)

    def remarks(self, model: StudiedModel) -> tuple[list[str], list[dict[str, Any]]]:
        """The warnings of a step that is done, and what was found about later tokens."""
        note = self.notes[step_key(model.stage, model.step)]
        return note.get("warnings", []), note.get("look_ahead", [])

    def recorded(self, model: StudiedModel) -> tuple[list[SaturationRow], list[HeadRow]]:
        """The rows of a step that is done."""
        key = (model.stage, model.step)
        return self._layers.get(key, []), self._heads.get(key, [])

    def save(
        self,
        model: StudiedModel,
        note: Mapping[str, Any],
        result: SaturationAndHeads,
        shown: Sequence[AttentionExample],
        predictions: StepPredictions = StepPredictions(),
    ) -> None:
        """Write a step and its note, all or nothing; earlier measurements of the step are replaced."""
        rows, place = head_rows(result.heads, model.step, model.stage), step_key(model.stage, model.step)
        keys = {(row.module, row.head): row.example_key for row in rows}
        with self._run.transaction():
            self._run.delete_rows("artifact", _ITS_MAPS, (place, model.stage, model.step))
            self._run.delete_network(model.step, model.stage)
            self._run.delete_rows("artifact", "kind = ? AND key = ?", (LIVE_PROBES, place))
            self._run.write(saturation_rows(result.saturation, model.step, model.stage))
            self._run.write(rows)
            for example in shown:
                self._run.set_artifact("attention", keys[example.module, example.head], example.document())
            save_predictions(self._run, model, predictions)
            self._run.set_artifact(self.KIND, place, {**note, **self._made()})

    def _made(self) -> dict[str, Any]:
        """By which command, when and with which versions a step is measured."""
        versions = {"normscope": __version__, "torch": torch.__version__}
        made = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "versions": versions}
        return {**made, **({"command": self._command} if self._command else {})}

    def predictions(self, model: StudiedModel, options: PredictionOptions) -> StepPredictions:
        """What was measured of the predictions of a step that is done."""
        key = step_key(model.stage, model.step)
        task = self._tasks.get(key) if options.task else None
        return StepPredictions(task, self._ablations.get(key) if options.ablate else None)

    @cached_property
    def _tasks(self) -> dict[str, Any]:
        return self._run.artifacts(TASK_KIND)

    @cached_property
    def _ablations(self) -> dict[str, Any]:
        return self._run.artifacts(ABLATION_KIND)

    @cached_property
    def _layers(self) -> dict[tuple[str, int], list[SaturationRow]]:
        rows = (replace(row, converged=bool(row.converged)) for row in self._rows(SaturationRow))
        return _by_step(sorted(rows, key=lambda row: (row.module.rpartition(".")[0], row.layer)))

    @cached_property
    def _heads(self) -> dict[tuple[str, int], list[HeadRow]]:
        rows = (replace(row, converged=bool(row.converged)) for row in self._rows(HeadRow))
        return _by_step(sorted(rows, key=lambda row: (row.layer, row.module, row.head)))

    def _rows(self, kind: type[RowType]) -> list[RowType]:
        columns = self._run.table(kind).columns.values()
        return [kind(*values) for values in zip(*columns, strict=True)]


def _dependencies(note: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in note.items() if name not in _FOR_THE_READER}


def _by_step(rows: Sequence[RowType]) -> dict[tuple[str, int], list[RowType]]:
    found: dict[tuple[str, int], list[RowType]] = {}
    for row in rows:
        found.setdefault((row.stage, row.step), []).append(row)
    return found


def record_curves(run: Run, result: Homogeneity, reference: float) -> None:
    """Write the scaling curves, one per layer and one for the output, with the scale of their cosines."""
    names = ("c", "cosine", "norm", "degree", "euler")
    with run.transaction():
        for row in result.degrees:
            document = {name: getattr(row, name) for name in names} | {"reference": reference}
            run.set_artifact("scaling-curve", row.module, document)
