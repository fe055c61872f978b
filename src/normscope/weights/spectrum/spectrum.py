"""Measure the spectra of a series into its run file: resumable, like a scan, which comes first."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from normscope.anatomy import in_scope
from normscope.checkpoints.series.series import CheckpointSource
from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.rows import MeasureRow, SpectrumRow
from normscope.run import Run, TensorRow
from normscope.table import Table
from normscope.weights.heads.attention_facts import AttentionSettings, HeadOptions
from normscope.weights.scan.plugin_measures import MeasuredStage
from normscope.weights.scan.scan import ScanConfig, scan_series
from normscope.weights.spectra.krylov_values import KrylovOptions
from normscope.weights.spectra.matrix_spectrum import SpectrumOptions
from normscope.weights.spectrum.head_tasks import HEAD_KINDS, HeadTask, head_measures, head_notes, head_tasks
from normscope.weights.spectrum.matrix_parts import has_matrices
from normscope.weights.spectrum.spectrum_figures import UNMEASURED
from normscope.weights.spectrum.spectrum_sources import MeasuredSource, find_source
from normscope.weights.spectrum.spectrum_tasks import KINDS as MATRIX_KINDS
from normscope.weights.spectrum.spectrum_tasks import WEIGHTS, SpectrumTask, missing_tasks

if TYPE_CHECKING:
    from torch import nn

RUN_FILE = "run.db"
FLUSH_SECONDS = 1.0  # measured matrices wait at most this long to be written
SETTINGS = "spectrum-settings"
HEAD_SETTINGS = "spectrum-heads"
KINDS = (*MATRIX_KINDS, *HEAD_KINDS)
MEASURES = {
    "spectral-norm": "spectral_norm",
    "stable-rank": "stable_rank",
    "effective-rank": "effective_rank",
    "nuclear-norm": "nuclear_norm",
    "alpha": "alpha",
}
"""Measures of a run that spectra of weights give, by the column they are read from."""


@dataclass(frozen=True)
class SpectrumConfig:
    """What is measured of which matrices.

    `of` are kinds: weights, update (since the checkpoint before), growth (since the first), and of each
    attention head qk and ov. Embeddings and output heads are left out unless `scope` is "all". `exact`
    computes all singular values of large matrices too. `top` is how many of the largest are kept. `scan`
    says how the series is read. `heads`, `kv_heads` and `qkv_order` ("blocks" or "groups") say what no
    config.json beside the checkpoints says about attention heads.

    >>> ns.SpectrumConfig(of=("weights", "growth")).top
    32
    """

    of: Sequence[str] = (WEIGHTS,)
    scope: str = "body"
    exact: bool = False
    top: int = 32
    seed: int = 0
    scan: ScanConfig | None = None
    heads: int | None = None
    kv_heads: int | None = None
    qkv_order: str | None = None

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.of if kind not in KINDS]
        if isinstance(self.of, str) or unknown or not self.of:
            raise UsageError(f"of must be a list of {', '.join(KINDS)}; got {self.of!r}")
        object.__setattr__(self, "of", tuple(kind for kind in KINDS if kind in self.of))
        object.__setattr__(self, "top", check_integer("top", self.top, 1))
        object.__setattr__(self, "seed", check_integer("seed", self.seed))
        check_kind("exact", self.exact, bool, "True or False")
        if _head_options(self) != HeadOptions() and not set(self.of) & set(HEAD_KINDS):
            raise UsageError("heads, kv_heads and qkv_order are for of=qk or ov; leave them out")

    @property
    def settings(self) -> dict[str, Any]:
        """What a row depends on; with others it is measured again."""
        return {"exact": self.exact, "top": self.top, "seed": self.seed}


@dataclass(frozen=True)
class Spectra:
    """The spectra of a series; `notes` say which matrices have none, and why.

    `run` is the run file that has them; None for those of one model, which are in none.

    >>> tensor = ns.TensorRow(0, "h.0.mlp.w", "model", 0, "mlp in", (3, 3), "float32", 9)
    >>> row = ns.SpectrumRow(10, "weights", 0, "exact", spectral_norm=3.0)
    >>> ns.Spectra((row,), (tensor,), ()).table.columns["spectral_norm"]
    [3.0]
    """

    rows: tuple[SpectrumRow, ...]
    tensors: tuple[TensorRow, ...]
    notes: tuple[str, ...]
    run: Path | None = None

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
    if row.kind in HEAD_KINDS:
        place["head"] = row.part
    figures = {name: value for name, value in vars(row).items() if name not in ("detail", "tensor", "step")}
    detail = {"top": [], "quantiles": [], "error": {}} | dict(row.detail or {})
    return (
        place
        | figures
        | {name: value for name, value in detail.items() if name != "top_errors"}
        | {"error": {**detail["error"], "top": detail.get("top_errors", [])}}
    )


def spectrum(
    source: CheckpointSource | Sequence[CheckpointSource] | nn.Module,
    run: str | os.PathLike[str] | None = None,
    config: SpectrumConfig | None = None,
    *,
    of: Sequence[str] | None = None,
    exact: bool | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    progress: Progress = silent,
) -> Spectra:
    """Measure the singular values of the matrices of a series, and keep them in the run file.

    `source` is what `ns.scan` takes, a hub id, `my_model.py:build` or a live module. `run` is the run file:
    run.db unless another is given; of one model alone, none. The series is scanned first, if it has not
    been. `of`, `exact`, `heads` and `kv_heads` are explained in SpectrumConfig; give them or a `config`.
    `progress` is called with (elements done, elements in all, note). Matrices that the run file already has
    are not measured again.

    >>> import numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for step in (10, 20):
    ...     np.savez(f"{folder}/step_{step}.npz", **{"h.0.mlp.w": np.diag([3.0, 2.0, 1.0]) * step})
    >>> found = ns.spectrum(folder, f"{folder}/run.db")
    >>> [(row.step, round(row.spectral_norm, 6)) for row in found.rows]
    [(10, 30.0), (20, 60.0)]
    """
    check_progress(progress)
    if run is not None:
        check_kind("run", run, (str, os.PathLike), "the path of a run file")
    keywords = (("of", of), ("exact", exact), ("heads", heads), ("kv_heads", kv_heads))
    given: dict[str, Any] = {name: value for name, value in keywords if value is not None}
    if config is not None and given:
        raise UsageError(f"give {' and '.join(given)} in the SpectrumConfig or as a keyword, not both")
    config = config or SpectrumConfig(**given)
    found = find_source(source, config.scan or ScanConfig())
    if run is not None or not found.single:
        return _measured(found, run or RUN_FILE, config, progress)
    with TemporaryDirectory() as folder:
        return replace(_measured(found, Path(folder) / RUN_FILE, config, progress), run=None)


def _measured(
    found: MeasuredSource, run: str | os.PathLike[str], config: SpectrumConfig, progress: Progress
) -> Spectra:
    settings = AttentionSettings(found.document, _head_options(config))
    if set(config.of) & set(HEAD_KINDS):
        settings.check()
    recorder = _Recorder(config, settings, progress)
    scan_series(found.series, run, config.scan or ScanConfig(), progress, more=recorder.measure)
    with Run(run) as opened:
        return replace(recorded_spectra(opened, config.of), run=Path(run))


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
    missing = dict.fromkeys(
        f"no spectrum of the {row.kind} of {named[row.tensor]} at step {row.step}: {_note(row)}"
        for row in kept
        if row.method == UNMEASURED
    )
    notes = (*missing, *head_notes(kept, kinds))
    return Spectra(tuple(row for row in kept if row.method != UNMEASURED), tensors, notes)


def _note(row: SpectrumRow) -> str:
    return str((row.detail or {}).get("note"))


class _Recorder:
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
        """Delete spectra that were measured in another way."""
        before = run.artifacts(SETTINGS).get("", self._config.settings)
        with run.transaction():
            if before != self._config.settings:
                run.delete_rows("spectrum", "1")
            run.set_artifact(SETTINGS, "", self._config.settings)
            if set(self._config.of) & set(HEAD_KINDS):
                if run.artifacts(HEAD_SETTINGS).get("", self._settings.recorded) != self._settings.recorded:
                    run.delete_rows("spectrum", "kind IN ('qk', 'ov')")
                run.set_artifact(HEAD_SETTINGS, "", self._settings.recorded)

    def _flush(self, run: Run) -> None:
        if not self._rows:
            return
        with run.transaction():
            run.write(self._rows)
            run.write(
                [*(row for each in self._rows for row in _as_measures(each)), *head_measures(self._rows)]
            )
        self._rows.clear()


def _head_options(config: SpectrumConfig) -> HeadOptions:
    return HeadOptions(config.heads, config.kv_heads, config.qkv_order)


def _options(config: SpectrumConfig) -> SpectrumOptions:
    return SpectrumOptions(exact=config.exact, top=config.top, krylov=KrylovOptions(seed=config.seed))


def _as_measures(row: SpectrumRow) -> list[MeasureRow]:
    """What fits and figures read like any other measure: figures of whole tensors."""
    if row.kind != WEIGHTS or row.part >= 0:
        return []
    return [
        MeasureRow(row.step, row.tensor, name, getattr(row, column), row.stage)
        for name, column in MEASURES.items()
    ]
