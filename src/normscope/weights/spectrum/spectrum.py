"""Measure the spectra of a series into its run file: resumable, like a scan, which comes first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from normscope.checkpoints.series.series import CheckpointSource
from normscope.errors import UsageError
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.rows import SpectrumRow
from normscope.run import Run, TensorRow
from normscope.table import Table
from normscope.weights.heads.attention_facts import AttentionSettings
from normscope.weights.scan.scan import ScanConfig, scan_series
from normscope.weights.spectrum.head_tasks import HEAD_KINDS, head_notes
from normscope.weights.spectrum.spectrum_config import KINDS, SpectrumConfig, head_options
from normscope.weights.spectrum.spectrum_figures import UNMEASURED
from normscope.weights.spectrum.spectrum_recorder import SpectrumRecorder
from normscope.weights.spectrum.spectrum_sources import SpectrumSource, find_source

if TYPE_CHECKING:
    from torch import nn

RUN_FILE = "run.db"


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
    query_heads: int | None = None,
    kv_heads: int | None = None,
    progress: Progress = silent,
) -> Spectra:
    """Measure the singular values of the matrices of a series, and keep them in the run file.

    `source` is what `ns.scan` takes, a hub id, `my_model.py:build` or a live module. `run` is the run file:
    run.db unless another is given; of one model alone, none. The series is scanned first, if it has not
    been. `of`, `exact`, `query_heads` and `kv_heads` are explained in SpectrumConfig; give them or a
    `config`. `progress` is called with (elements done, elements in all, note). Matrices that the run file
    already has are not measured again.

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
    keywords = (("of", of), ("exact", exact), ("query_heads", query_heads), ("kv_heads", kv_heads))
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
    found: SpectrumSource, run: str | os.PathLike[str], config: SpectrumConfig, progress: Progress
) -> Spectra:
    settings = AttentionSettings(found.document, head_options(config))
    if set(config.of) & set(HEAD_KINDS):
        settings.check()
    recorder = SpectrumRecorder(config, settings, progress)
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
