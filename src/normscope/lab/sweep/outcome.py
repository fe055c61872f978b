"""Train one cell of a sweep, in any process, and describe the result as a JSON document.

The fields of the document are explained in docs/json.md.
"""

from __future__ import annotations

import json
import math
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normscope.atomic_write import atomic_write
from normscope.errors import Diverged, NormscopeError, TrainingError
from normscope.lab.sweep.cell_folders import CellReturn, SharedFolder
from normscope.lab.sweep.cells import Cell
from normscope.lab.sweep.network_results import network_results
from normscope.lab.sweep.spectral_results import spectral_results
from normscope.run import Run
from normscope.run_files.json_files import read_document
from normscope.run_files.run_documents import CELL
from normscope.schedule import NEVER

_ONE_AT_A_TIME = threading.Lock()
"""Trainings in threads of one process take turns: the random numbers of torch are those of the process."""

CURVES = ("norm", "body_norm", "loss", "update", "radial")
EVALUATED = ("_loss", "_accuracy", "_perplexity", "_agreement")
"""How the names of numbers on held-out data end, in the network as it is and in the saturated one."""


@dataclass(frozen=True)
class CellJob:
    """A cell and the folder of its sweep, as sent to a worker."""

    cell: Cell
    out: Path
    retry: bool = False

    @property
    def folder(self) -> Path:
        """The cell's own folder."""
        return self.out / "cells" / self.cell.id


def run_cell(job: CellJob) -> dict[str, Any]:
    """Train one cell with one thread and return its document; for a finished cell, only read it."""
    import torch

    kept = job.folder / "result.json"
    if kept.exists():
        document: dict[str, Any] = read_document(kept, TrainingError, CELL)
        if not (job.retry and document["status"] == "failed"):
            return document
    torch.set_num_threads(1)
    with _ONE_AT_A_TIME:
        document = _attempt(job)
    with atomic_write(kept) as part:
        part.write_text(json.dumps(document), encoding="utf-8")
    (job.folder / "state.pt").unlink(missing_ok=True)
    return document


def run_cell_anywhere(job: CellJob, shared: SharedFolder) -> CellReturn:
    """Like `run_cell`, also on a machine that does not have the folder of the sweep: its files come back."""
    with shared.working_folder(job.cell.id) as folder:
        here = replace(job, out=folder)
        return shared.collect(run_cell(here), here.folder)


def _attempt(job: CellJob) -> dict[str, Any]:
    from normscope.lab.training.train import train_in
    from normscope.lab.training.trainer import RunPaths
    from normscope.lab.training.updates import UpdateSizeRecorder

    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        paths = RunPaths(job.folder, job.folder / "run.db", job.out / "data")
        result = train_in(paths, job.cell.config, [UpdateSizeRecorder()])
    except Diverged as error:
        return cell_document(job, "diverged", error=str(error)) | _measured(job)
    except NormscopeError as error:
        return cell_document(job, "failed", error=str(error))
    except Exception:
        return cell_document(job, "failed", error=traceback.format_exc(limit=-3))
    measured = {
        "parameters": result.parameters,
        "seconds": result.seconds,
        "evaluation": _finite(result.evaluation),
    }
    return cell_document(job, "done") | _measured(job) | measured


def cell_document(job: CellJob, status: str, error: str | None = None) -> dict[str, Any]:
    """Return the part of a document that is known before training."""
    optimization = job.cell.config.optimization
    return {
        "id": job.cell.id,
        "changes": dict(job.cell.changes),
        "status": status,
        "error": error,
        "seed": job.cell.config.seed,
        "lr": optimization.lr,
        "weight_decay": optimization.weight_decay,
        "run": f"cells/{job.cell.id}/run.db",
    }


def _measured(job: CellJob) -> dict[str, Any]:
    """Read everything that was measured, until training ended or diverged, from the run file of the cell."""
    with Run(job.folder / "run.db") as run:
        rows = run.query("SELECT name, step, value FROM scalar ORDER BY step")
        network = network_results(run) if job.cell.config.saturation != NEVER else {}
        spectra = spectral_results(run) if job.cell.config.spectrum != NEVER else {}
    return _numbers(rows) | network | spectra


def _numbers(rows: Sequence[tuple[str, int, float | None]]) -> dict[str, Any]:
    """Norms, losses, update sizes and curves, from (name, step, value) ordered by step."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in rows:
        if value is not None and math.isfinite(value):
            curves.setdefault(name, []).append((step, value))
    found: dict[str, Any] = {"steps": max((row[1] for row in rows), default=0)}
    for name in ("norm", "body_norm"):
        if name in curves:
            found |= {f"{name}_start": curves[name][0][1], f"{name}_end": curves[name][-1][1]}
    for name in ("update", "body_update"):  # squares add up
        if name in curves:
            found[name] = math.sqrt(_mean([value**2 for _, value in curves[name]]))
    for name in ("radial", "body_radial", "decayed", "body_decayed"):
        if name in curves:
            found[name] = _mean([value for _, value in curves[name]])
    found["loss"] = curves["loss"][-1][1] if "loss" in curves else None
    found["mean_lr"] = _mean([value for _, value in curves["lr"]]) if "lr" in curves else None
    evaluated = [name for name in curves if name.endswith(EVALUATED)]
    found["evaluation"] = {name: curves[name][-1][1] for name in evaluated}
    shown = [name for name in CURVES if name in curves] + evaluated
    return found | {"curves": {name: thinned(curves[name]) for name in shown}}


def thinned(points: Sequence[tuple[int, float]], count: int = 100) -> list[tuple[int, float]]:
    """Return at most `count` of the points, with the first and the last."""
    if len(points) <= count:
        return list(points)
    return [points[round(i * (len(points) - 1) / (count - 1))] for i in range(count)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
