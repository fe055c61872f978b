"""Measure the spectra of a series into its run file: resumable, like a scan, which comes first."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normscope._spectrum_rows import SPECTRAL_MEASURES
from normscope.anatomy import in_scope
from normscope.checkpoints.series.series import CheckpointSource, open_series
from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.rows import MeasureRow, SpectrumRow
from normscope.run import Run, TensorRow
from normscope.table import Table
from normscope.weights.scan.plugin_measures import MeasuredStage
from normscope.weights.scan.scan import ScanConfig, scan_series
from normscope.weights.spectra.krylov_values import KrylovOptions
from normscope.weights.spectra.matrix_spectrum import SpectrumOptions
from normscope.weights.spectrum.matrix_parts import has_matrices
from normscope.weights.spectrum.spectrum_figures import UNMEASURED
from normscope.weights.spectrum.spectrum_tasks import KINDS, WEIGHTS, SpectrumTask, missing_tasks

FLUSH_SECONDS = 1.0  # measured matrices wait at most this long to be written
SETTINGS = "spectrum-settings"


@dataclass(frozen=True)
class SpectrumConfig:
    """What is measured of which matrices.

    `of` are kinds: weights, update (since the checkpoint before), growth (since the first). Embeddings and
    heads are left out unless `scope` is "all". `exact` computes all singular values of large matrices too.
    `top` is how many of the largest are kept. `scan` says how the series is read.

    >>> ns.SpectrumConfig(of=("weights", "growth")).top
    32
    """

    of: Sequence[str] = (WEIGHTS,)
    scope: str = "body"
    exact: bool = False
    top: int = 32
    seed: int = 0
    scan: ScanConfig | None = None

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.of if kind not in KINDS]
        if isinstance(self.of, str) or unknown or not self.of:
            raise UsageError(f"of must be a list of {', '.join(KINDS)}; got {self.of!r}")
        object.__setattr__(self, "of", tuple(kind for kind in KINDS if kind in self.of))
        object.__setattr__(self, "top", check_integer("top", self.top, 1))
        object.__setattr__(self, "seed", check_integer("seed", self.seed))
        check_kind("exact", self.exact, bool, "True or False")

    @property
    def settings(self) -> dict[str, Any]:
        """What a row depends on; with others it is measured again."""
        return {"exact": self.exact, "top": self.top, "seed": self.seed}


@dataclass(frozen=True)
class Spectra:
    """The spectra of a series; `notes` say which matrices have none, and why.

    >>> tensor = ns.TensorRow(0, "h.0.mlp.w", "model", 0, "mlp in", (3, 3), "float32", 9)
    >>> row = ns.SpectrumRow(10, "weights", 0, "exact", spectral_norm=3.0)
    >>> ns.Spectra((row,), (tensor,), ()).table.columns["spectral_norm"]
    [3.0]
    """

    rows: tuple[SpectrumRow, ...]
    tensors: tuple[TensorRow, ...]
    notes: tuple[str, ...]

    def documents(self) -> list[dict[str, Any]]:
        """What --json prints: one object per matrix, step and kind."""
        named = {tensor.id: tensor for tensor in self.tensors}
        return [_document(row, named[row.tensor]) for row in self.rows]

    @property
    def table(self) -> Table:
        """One row per matrix, step and kind, with the figures of `SpectrumRow`."""
        named = {tensor.id: tensor for tensor in self.tensors}
        hidden = ("detail", "tensor", "step", "kind", "stage", "part")
        columns = [name for name in vars(self.rows[0]) if name not in hidden] if self.rows else []
        return Table.from_rows(
            ["step", "kind", "name", "layer", "role", "part", *columns],
            [
                (
                    *(row.step, row.kind, named[row.tensor].name, named[row.tensor].layer),
                    *(named[row.tensor].role, row.part),
                    *(getattr(row, name) for name in columns),
                )
                for row in self.rows
            ],
        )


def _document(row: SpectrumRow, tensor: TensorRow) -> dict[str, Any]:
    place = {"step": row.step, "name": tensor.name, "layer": tensor.layer, "role": tensor.role}
    figures = {name: value for name, value in vars(row).items() if name not in ("detail", "tensor", "step")}
    detail = {"top": [], "quantiles": [], "error": {}} | dict(row.detail or {})
    return (
        place
        | figures
        | {name: value for name, value in detail.items() if name != "top_errors"}
        | {"error": {**detail["error"], "top": detail.get("top_errors", [])}}
    )


def spectrum(
    source: CheckpointSource | Sequence[CheckpointSource],
    run: str | os.PathLike[str] = "run.db",
    config: SpectrumConfig | None = None,
    *,
    of: Sequence[str] | None = None,
    exact: bool | None = None,
    progress: Progress = silent,
) -> Spectra:
    """Measure the singular values of the matrices of a series, and keep them in the run file.

    `source` is what `ns.scan` takes, `run` the run file. The series is scanned first, if it has not been.
    `of` and `exact` are explained in SpectrumConfig; give them or a `config`. `progress` is called with
    (elements done, elements in all, note). Matrices that the run file already has are not measured again.

    >>> import numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for step in (10, 20):
    ...     np.savez(f"{folder}/step_{step}.npz", **{"h.0.mlp.w": np.diag([3.0, 2.0, 1.0]) * step})
    >>> found = ns.spectrum(folder, f"{folder}/run.db")
    >>> [(row.step, round(row.spectral_norm, 6)) for row in found.rows]
    [(10, 30.0), (20, 60.0)]
    """
    check_progress(progress)
    check_kind("run", run, (str, os.PathLike), "the path of a run file")
    keywords = (("of", of), ("exact", exact))
    given: dict[str, Any] = {name: value for name, value in keywords if value is not None}
    if config is not None and given:
        raise UsageError(f"give {' and '.join(given)} in the SpectrumConfig or as a keyword, not both")
    config = config or SpectrumConfig(**given)
    scanned = config.scan or ScanConfig()
    series = open_series(source, steps=scanned.steps, revisions=scanned.revisions, pattern=scanned.pattern)
    recorder = _Recorder(config, progress)
    scan_series(series, run, scanned, progress, more=recorder.measure)
    with Run(run) as opened:
        return recorded_spectra(opened, config.of)


def recorded_spectra(run: Run, kinds: Sequence[str] = KINDS) -> Spectra:
    """The spectra that a run file has, by kind, stage, step, tensor."""
    columns = run.table(SpectrumRow).columns.values()
    rows = [SpectrumRow(*values) for values in zip(*columns, strict=True)]
    order = {kind: i for i, kind in enumerate(kinds)}
    kept = sorted(
        (row for row in rows if row.kind in order),
        key=lambda row: (order[row.kind], row.stage, row.step, row.tensor, row.part),
    )
    tensors = tuple(run.tensors())
    named = {tensor.id: tensor.name for tensor in tensors}
    notes = dict.fromkeys(
        f"no spectrum of the {row.kind} of {named[row.tensor]} at step {row.step}: {_note(row)}"
        for row in kept
        if row.method == UNMEASURED
    )
    return Spectra(tuple(row for row in kept if row.method != UNMEASURED), tensors, tuple(notes))


def _note(row: SpectrumRow) -> str:
    return str((row.detail or {}).get("note"))


class _Recorder:
    """Measures what is missing, and writes it as it is finished."""

    def __init__(self, config: SpectrumConfig, progress: Progress) -> None:
        self._config, self._progress = config, progress
        self._rows: list[SpectrumRow] = []

    def measure(self, run: Run, stages: Sequence[MeasuredStage]) -> None:
        """Measure every stage; call it while the checkpoints are open."""
        self._forget_others(run)
        tasks = [task for stage in stages for task in self._tasks(run, stage)]
        total, done = sum(_cost(task) for task in tasks), 0
        flushed = time.monotonic()
        try:
            for task in tasks:
                for rows in task.measure():
                    self._rows += rows
                    done += task.row.numel
                    self._progress(done, total, f"spectra of {task.row.name}")
                    if time.monotonic() - flushed > FLUSH_SECONDS:
                        self._flush(run)
                        flushed = time.monotonic()
        finally:
            self._flush(run)

    def _tasks(self, run: Run, stage: MeasuredStage) -> list[SpectrumTask]:
        known = {row.id: row for row in run.tensors()}  # some may have turned out to be copies
        alive = [known[row.id] for row in stage.rows if known[row.id].tied_to is None]
        chosen = in_scope(alive, self._config.scope, lambda row: (row.role, row.shape))
        rows = [row for row in chosen if has_matrices(row)]
        return missing_tasks(run, stage, rows, self._config.of, _options(self._config))

    def _forget_others(self, run: Run) -> None:
        """Delete spectra that were measured in another way."""
        before = run.artifacts(SETTINGS).get("", self._config.settings)
        with run.transaction():
            if before != self._config.settings:
                run.delete_rows("spectrum", "1")
            run.set_artifact(SETTINGS, "", self._config.settings)

    def _flush(self, run: Run) -> None:
        if not self._rows:
            return
        with run.transaction():
            run.write(self._rows)
            run.write([row for each in self._rows for row in _as_measures(each)])
        self._rows.clear()


def _options(config: SpectrumConfig) -> SpectrumOptions:
    return SpectrumOptions(exact=config.exact, top=config.top, krylov=KrylovOptions(seed=config.seed))


def _cost(task: SpectrumTask) -> int:
    return task.row.numel * len(task.wanted)


def _as_measures(row: SpectrumRow) -> list[MeasureRow]:
    """What fits and figures read like any other measure: figures of whole tensors."""
    if row.kind != WEIGHTS or row.part >= 0:
        return []
    return [
        MeasureRow(row.step, row.tensor, name, getattr(row, column), row.stage)
        for name, column in SPECTRAL_MEASURES.items()
    ]
