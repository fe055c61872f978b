"""From the rows of a run file to the curves of what growth does, all over the same steps of training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import TypeVar

from normscope.rows import TABLE_OF, ActivationRow, AttentionRow, HeadRow, SaturationRow
from normscope.run import Run
from normscope.theory.effects.curves import Curves
from normscope.theory.effects.measured_steps import MeasuredSteps, measured_steps, of_one_way
from normscope.theory.measures.time_series import Series

HEAD_TYPES = ("argmax", "mixed", "mean", "undecided")
Fold = Callable[[list[float]], float]
Folds = Mapping[str, Fold]
R = TypeVar("R", ActivationRow, AttentionRow, HeadRow, SaturationRow)


@dataclass(frozen=True)
class GrowthEffects:
    """What was measured of a network over the steps of a stage, and how.

    `norm` is the norm at every record. `curves` are, as far as they were measured, in this order: logit,
    entropy, saturation, types, residual, output. `attention` says on which batch logits and entropies were
    measured ("probe" or "training"), `by` who measured saturation and heads, on `tokens` (lowest and highest
    number). `unconverged` is the number of layers, by step, whose saturation is not certain, of `layers`.
    `left_out` are steps at which saturation or heads were measured another way.
    """

    norm: Curves | None
    curves: tuple[Curves, ...]
    attention: str
    by: str
    tokens: tuple[int, int] | None
    unconverged: Mapping[int, int]
    layers: int
    left_out: tuple[int, ...]
    scope: str

    def get(self, quantity: str) -> Curves | None:
        """The curves of one quantity; None if it was not measured."""
        return next((curves for curves in self.curves if curves.quantity == quantity), None)

    @property
    def steps(self) -> list[int]:
        """The steps at which anything was measured by running the network."""
        return sorted({step for curves in self.curves for step in curves.steps})


def growth_effects(run: Run, stage: str = "", norms: Series | None = None) -> GrowthEffects | None:
    """The curves of one stage of a run beside its norms; None if nothing was measured on the network."""
    measured = measured_steps(run, stage)
    layers, other_layers = of_one_way(_rows(run, SaturationRow, stage), measured)
    way = measured.by(layers[0].step) if layers else None
    heads, other_heads = of_one_way(_rows(run, HeadRow, stage), measured, way)
    attention, batch = _attention(_rows(run, AttentionRow, stage))
    curves = [*attention, *_saturation(layers), *_types(heads), *_activations(run, stage)]
    if not curves:
        return None
    below = [row for row in layers if row.layer > 0]
    return GrowthEffects(
        norm=_norm(norms),
        curves=tuple(curves),
        attention=batch,
        by=_kind(layers or heads, measured),
        tokens=(min(r.tokens for r in layers), max(r.tokens for r in layers)) if layers else None,
        unconverged=Counter(row.step for row in below if not row.converged),
        layers=len({row.module for row in below}),
        left_out=tuple(sorted({*other_layers, *other_heads})),
        scope=norms.scope if norms is not None else "",
    )


def _kind(rows: Sequence[SaturationRow] | Sequence[HeadRow], measured: MeasuredSteps) -> str:
    return measured.by(rows[0].step) if rows else ""


def _rows(run: Run, kind: type[R], stage: str) -> list[R]:
    names = ", ".join(field.name for field in fields(kind))
    sql = f"SELECT {names} FROM {TABLE_OF[kind]} WHERE stage = ? ORDER BY step, layer, module"
    return [kind(*row) for row in run.query(sql, (stage,))]


def _norm(norms: Series | None) -> Curves | None:
    if norms is None or not len(norms):
        return None
    return Curves("norm", tuple(norms.steps.tolist()), {"norm": tuple(norms.values.tolist())}, "norm")


def _attention(rows: Sequence[AttentionRow]) -> tuple[list[Curves], str]:
    """Logits and entropies, of the probe if it measured any, else of the training batches; and of which."""
    batch = next((name for name in ("probe", "training") if any(row.source == name for row in rows)), "")
    steps = _by_step([row for row in rows if row.source == batch])
    if not steps:
        return [], ""
    logits: Folds = {"largest head": max, "median head": median}
    entropies: Folds = {"mean over heads": fmean, "lowest head": min, "highest head": max}
    heads = {
        step: [row for row in found if row.relative_entropy is not None] for step, found in steps.items()
    }
    found = [_folded("logit", steps, lambda row: row.logit, logits)]
    if any(heads.values()):
        found.append(_folded("entropy", heads, lambda row: row.relative_entropy, entropies))
    return found, batch


def _saturation(rows: Sequence[SaturationRow]) -> list[Curves]:
    """The mean over the layers; the input, layer 0, is no layer and its cosine is 1."""
    steps = _by_step([row for row in rows if row.layer > 0])
    folds: Folds = {"mean over layers": fmean, "lowest layer": min, "highest layer": max}
    return [_folded("saturation", steps, lambda row: row.cosine, folds)] if steps else []


def _types(rows: Sequence[HeadRow]) -> list[Curves]:
    """The share of each type among all heads, in per cent."""
    steps = _by_step(rows)
    found = {step: Counter(row.type for row in heads) for step, heads in steps.items()}
    kinds = [kind for kind in HEAD_TYPES if any(kind in types for types in found.values())]
    lines = {kind: tuple(100 * types[kind] / types.total() for types in found.values()) for kind in kinds}
    return [Curves("types", tuple(steps), lines, kinds[0])] if kinds else []


def _activations(run: Run, stage: str) -> list[Curves]:
    rows = _rows(run, ActivationRow, stage)
    found = []
    for kind in ("residual", "output"):
        steps = _by_step([row for row in rows if row.kind == kind])
        if steps:
            names = {row.module: row.layer for row in rows if row.kind == kind}
            lines = {module: _line(steps, module) for module in sorted(names, key=lambda name: names[name])}
            found.append(Curves(kind, tuple(steps), lines, list(lines)[-1]))
    return found


def _line(steps: Mapping[int, Sequence[ActivationRow]], module: str) -> tuple[float, ...]:
    found = ([row.norm for row in rows if row.module == module] for rows in steps.values())
    return tuple(_number(values[0]) if values else float("nan") for values in found)


def _by_step(rows: Sequence[R]) -> dict[int, list[R]]:
    found: dict[int, list[R]] = {}
    for row in rows:
        found.setdefault(row.step, []).append(row)
    return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _folded(
    quantity: str,
    steps: Mapping[int, Sequence[R]],
    value: Callable[[R], float | None],
    folds: Folds,
) -> Curves:
    """One line per fold over the rows of a step. A value that is not a number makes the step's NaN."""
    numbers = {step: [_number(value(row)) for row in rows] for step, rows in steps.items() if rows}
    lines = {name: tuple(_fold(fold, found) for found in numbers.values()) for name, fold in folds.items()}
    return Curves(quantity, tuple(numbers), lines, next(iter(folds)))


def _fold(fold: Fold, numbers: list[float]) -> float:
    return float("nan") if any(map(math.isnan, numbers)) else float(fold(numbers))
