"""Measure the matrices and heads of open checkpoints, and write their rows as they are finished."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from normscope._spectrum_rows import LARGEST_MEASURES, SPECTRAL_MEASURES
from normscope.anatomy import in_scope
from normscope.progress import Progress
from normscope.rows import MeasureRow, SpectrumRow
from normscope.run import Run
from normscope.weights.heads.attention_facts import AttentionSettings
from normscope.weights.live_spectra import LIVE, LIVE_MEASURE
from normscope.weights.scan.plugin_measures import MeasuredStage
from normscope.weights.spectra.krylov_values import KrylovOptions
from normscope.weights.spectra.matrix_spectrum import SpectrumOptions
from normscope.weights.spectrum.head_tasks import HEAD_KINDS, HeadTask, head_measures, head_tasks
from normscope.weights.spectrum.matrix_parts import has_matrices
from normscope.weights.spectrum.spectrum_config import SpectrumConfig
from normscope.weights.spectrum.spectrum_tasks import KINDS as MATRIX_KINDS
from normscope.weights.spectrum.spectrum_tasks import WEIGHTS, SpectrumTask, missing_tasks

FLUSH_SECONDS = 1.0  # measured matrices wait at most this long to be written
SETTINGS = "spectrum-settings"
HEAD_SETTINGS = "spectrum-heads"


class SpectrumRecorder:
    """Measures what is missing, and writes it as it is finished."""

    def __init__(self, config: SpectrumConfig, settings: AttentionSettings, progress: Progress) -> None:
        self._config, self._settings, self._progress = config, settings, progress
        self._rows: list[SpectrumRow] = []

    def measure(self, run: Run, stages: Sequence[MeasuredStage]) -> None:
        """Measure every stage; call it while the checkpoints are open."""
        self._forget_others(run)
        tasks = [task for stage in stages for task in self._tasks(run, stage)]
        total, done = sum(task.cost for task in tasks), 0
        flushed = time.monotonic()
        try:
            for task in tasks:
                for rows in task.measure():
                    self._rows += rows
                    done += task.step_cost
                    self._progress(done, total, f"spectra of {task.row.name}")
                    if time.monotonic() - flushed > FLUSH_SECONDS:
                        self._flush(run)
                        flushed = time.monotonic()
        finally:
            self._flush(run)

    def _tasks(self, run: Run, stage: MeasuredStage) -> list[SpectrumTask | HeadTask]:
        known = {row.id: row for row in run.tensors()}  # some may have turned out to be copies
        alive = [known[row.id] for row in stage.rows if known[row.id].tied_to is None]
        chosen = in_scope(alive, self._config.scope, lambda row: (row.role, row.shape))
        rows = [row for row in chosen if has_matrices(row)]
        kinds = [kind for kind in self._config.of if kind in MATRIX_KINDS]
        heads = [kind for kind in self._config.of if kind in HEAD_KINDS]
        return [
            *missing_tasks(run, stage, rows, kinds, _options(self._config)),
            *(head_tasks(run, stage, heads, self._settings, self._config.top) if heads else ()),
        ]

    def _forget_others(self, run: Run) -> None:
        """Delete spectra that were measured in another way, and heads that were cut in another way."""
        with run.transaction():
            if self._changed(run, SETTINGS, self._config.settings):
                _forget(run, f"NOT {LIVE}", (*SPECTRAL_MEASURES, *LARGEST_MEASURES))
            of_heads = set(self._config.of) & set(HEAD_KINDS)
            if of_heads and self._changed(run, HEAD_SETTINGS, self._settings.recorded):
                _forget(run, "kind IN ('qk', 'ov')", LARGEST_MEASURES)

    @staticmethod
    def _changed(run: Run, kind: str, now: dict[str, Any]) -> bool:
        before = run.artifacts(kind).get("", now)
        run.set_artifact(kind, "", now)
        return bool(before != now)

    def _flush(self, run: Run) -> None:
        if not self._rows:
            return
        with run.transaction():
            run.write(self._rows)
            run.write(
                [*(row for each in self._rows for row in as_measures(each)), *head_measures(self._rows)]
            )
        self._rows.clear()


def _forget(run: Run, condition: str, measures: Collection[str]) -> None:
    """Delete spectra and the measures made of them; those that a monitor wrote stay."""
    run.delete_rows("spectrum", condition)
    for name in measures:
        run.delete_rows("measure", f"name = ? AND NOT {LIVE_MEASURE}", (name,))


def _options(config: SpectrumConfig) -> SpectrumOptions:
    return SpectrumOptions(exact=config.exact, top=config.top, krylov=KrylovOptions(seed=config.seed))


def as_measures(row: SpectrumRow) -> list[MeasureRow]:
    """What fits and figures read like any other measure: figures of whole tensors."""
    if row.kind != WEIGHTS or row.part >= 0:
        return []
    return [
        MeasureRow(row.step, row.tensor, name, getattr(row, column), row.stage)
        for name, column in SPECTRAL_MEASURES.items()
    ]
