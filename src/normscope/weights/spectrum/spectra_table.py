"""Spectra by layer, role or tensor: means and extremes at the last step, as a person reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from normscope.anatomy import Place
from normscope.rows import SpectrumRow
from normscope.run import TensorRow
from normscope.weights.spectrum.head_tasks import HEAD_KINDS
from normscope.weights.spectrum.spectrum import Spectra
from normscope.words import by_layer

GROUPS: Mapping[str, Callable[[TensorRow], str]] = {
    "layer": lambda tensor: Place(tensor.component, tensor.layer, tensor.role, known=True).group,
    "role": lambda tensor: tensor.role,
    "tensor": lambda tensor: tensor.name,
}
SHOWN = {
    "σ₁": "spectral_norm",
    "stable rank": "stable_rank",
    "effective rank": "effective_rank",
    "α": "alpha",
}
HEADS = {"σ₁": "spectral_norm", "stable rank": "stable_rank", "effective rank": "effective_rank"}
MORE = dict.fromkeys(("update", "growth"), ("in old directions", "by chance")) | {"qk": ("logits up to",)}
CHANGES = {"σ₁": "spectral_norm", "directions 50 %": "directions_half", "90 %": "directions_most"}


@dataclass(frozen=True)
class SpectraTable:
    """One kind at the last step of a stage: a row for each group."""

    title: str
    columns: list[str]
    rows: list[list[Any]]


def spectra_table(found: Spectra, by: str = "layer") -> list[SpectraTable]:
    """A table for each kind and stage, of its last step."""
    last: dict[tuple[str, str], int] = {}
    for row in found.rows:
        last[row.kind, row.stage] = max(row.step, last.get((row.kind, row.stage), row.step))
    return [_table(found, by, *place, step) for place, step in last.items()]


def _table(found: Spectra, by: str, kind: str, stage: str, step: int) -> SpectraTable:
    tensors = {tensor.id: tensor for tensor in found.tensors}
    groups: dict[str, list[SpectrumRow]] = {}
    for row in found.rows:
        if (row.kind, row.stage, row.step) == (kind, stage, step):
            groups.setdefault(GROUPS[by](tensors[row.tensor]), []).append(row)
    names = list(groups) if by == "tensor" else by_layer(groups)
    shown = SHOWN if kind == "weights" else HEADS if kind in HEAD_KINDS else CHANGES
    counted = "heads" if kind in HEAD_KINDS else "matrices"
    columns = [by, counted, "largest σ₁", *(f"mean {name}" for name in shown), *MORE.get(kind, ())]
    rows = [[name, len(groups[name]), *_figures(groups[name], kind, shown)] for name in names]
    where = f"{stage}, step {step}" if stage else f"step {step}"
    return SpectraTable(f"spectra of the {kind}, {where}", columns, rows)


def _figures(rows: list[SpectrumRow], kind: str, shown: Mapping[str, str]) -> list[float | None]:
    largest = max((row.spectral_norm for row in rows if row.spectral_norm is not None), default=None)
    means = [_mean(getattr(row, column) for row in rows) for column in shown.values()]
    if kind not in MORE:
        return [largest, *means]
    if kind == "qk":
        bounds = [(row.detail or {}).get("logit_bound") for row in rows]
        known = [float(bound) for bound in bounds if bound is not None]
        return [largest, *means, max(known) if len(known) == len(bounds) else None]
    shares = [(row.detail or {}).get("old") or {} for row in rows]
    return [largest, *means, *(_mean(share.get(name) for share in shares) for name in ("both", "by_chance"))]


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
