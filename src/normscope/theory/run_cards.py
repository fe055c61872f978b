"""Several runs beside one another: what is known of each, so that a reader sees where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.errors import SeriesError
from normscope.remarks import Finding
from normscope.run import Run
from normscope.theory.laws.growth import GrowthFit, fit_series
from normscope.theory.laws.laws import Array
from normscope.theory.laws.natural_clock import RateRecord, recorded_rates, source_rates
from normscope.theory.measures.measures import group, stage_of, tensors_in_scope
from normscope.theory.measures.series_sources import Selection, Source, load_one, opened_run
from normscope.theory.measures.time_series import Series
from normscope.theory.places.recorded_norms import has_only_norms

GROUPINGS = ("layer", "role")


@dataclass(frozen=True, eq=False)
class GroupNorms:
    """The norm of each group of a run at each step, as an array [steps, groups]."""

    groups: tuple[str, ...]
    steps: Array
    values: Array

    def at(self, step: float) -> Array:
        """The norms at a step, linear between those that were measured."""
        return np.array([np.interp(step, self.steps, column) for column in self.values.T])


@dataclass(frozen=True, eq=False)
class RunCard:
    """What is known of one run, or of one stage of it; None where something is not known.

    `parameters` are all, `body` those whose norm `norms` are; `tensors` their names and shapes. `tokens` are
    those seen at the steps of `norms`, NaN where that is not known. `rates` are the learning rates, `decay`
    the weight decays, each lowest and highest. `checked` says whether a scan looked for what is wrong with
    the checkpoints. `settings` are those of a run of the lab.
    """

    name: str
    norms: Series
    fit: GrowthFit | None
    no_fit: str
    parameters: int | None = None
    body: int | None = None
    tensors: frozenset[tuple[str, tuple[int, ...]]] = frozenset()
    tokens: Array | None = None
    rates: tuple[float, float] | None = None
    decay: tuple[float, float] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, GroupNorms] = field(default_factory=dict)
    checked: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the scan found wrong with its checkpoints."""
        return self.norms.findings


def run_cards(name: str, source: Source, measure: str | None = None) -> list[RunCard]:
    """The cards of a source: one, or one for each stage of a run with several, whose steps start anew."""
    with opened_run(source) as run:
        if run is None:
            return [_of_series(name, source, measure)]
        if has_only_norms(run) or len(run.stages()) < 2:
            return [_of_run(name, run, None)]
        return [_of_run(f"{name} ({stage})", run, stage) for stage in run.stages()]


def _of_series(name: str, source: Source, measure: str | None) -> RunCard:
    norms = load_one(source, Selection(measure))
    found = source_rates(source, None, measure)
    fit, no_fit = _fit(name, norms, found)
    decay = _ends(found.weight_decay) if found is not None and found.weight_decay.any() else None
    return RunCard(name, replace(norms, name=name), fit, no_fit, rates=_rates(found), decay=decay)


def _of_run(name: str, run: Run, stage: str | None) -> RunCard:
    norms = load_one(run, Selection(stage=stage))
    found = recorded_rates(run, stage)
    fit, no_fit = _fit(name, norms, found)
    card = RunCard(
        name,
        replace(norms, name=name),
        fit,
        no_fit,
        rates=_rates(found) or _setting(run, "lr"),
        decay=_recorded_decay(run) or _setting(run, "weight_decay"),
        settings=_settings(run),
        checked=bool(run.meta.get("complete")),
    )
    return card if has_only_norms(run) else replace(card, **_of_weights(run, norms, stage))


def _of_weights(run: Run, norms: Series, stage: str | None) -> dict[str, Any]:
    """What weight statistics tell beside the norms of the whole."""
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    body = tensors_in_scope(tensors, "body")
    return {
        "parameters": sum(tensor.numel for tensor in tensors),
        "body": sum(tensor.numel for tensor in body),
        "tensors": frozenset((tensor.name, tuple(tensor.shape)) for tensor in body),
        "tokens": _tokens(run, norms.steps, stage_of(run, stage)),
        "groups": {by: _group_norms(run, by, stage) for by in GROUPINGS},
    }


def _group_norms(run: Run, by: str, stage: str | None) -> GroupNorms:
    found = group(run, by=by, stage=stage)
    return GroupNorms(found.groups, found.steps.astype(np.float64), found.measure("norm"))


def _tokens(run: Run, steps: NDArray[np.int64], stage: str) -> Array | None:
    """The tokens seen at each step, from the names of the checkpoints or a logged scalar; None if unknown."""
    named = {row.step: row.tokens for row in run.checkpoints() if row.stage == stage}
    known = {step: float(tokens) for step, tokens in named.items() if tokens is not None}
    if not known:
        asked = "SELECT step, value FROM scalar WHERE name = 'tokens' AND stage = ?"
        known = dict(run.query(asked, (stage,)))
    found = np.array([known.get(int(step), np.nan) for step in steps], dtype=np.float64)
    return found if np.isfinite(found).any() else None


def _fit(name: str, norms: Series, rates: RateRecord | None) -> tuple[GrowthFit | None, str]:
    try:
        return fit_series(replace(norms, name=name, findings=(), notes=()), rates=rates), ""
    except SeriesError as error:
        return None, str(error)


def _rates(found: RateRecord | None) -> tuple[float, float] | None:
    return None if found is None else _ends(found.lr)


def _ends(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _recorded_decay(run: Run) -> tuple[float, float] | None:
    """The lowest and highest weight decay that was recorded; None if none was, which is not a decay of 0."""
    for asked in (
        "SELECT min(value), max(value) FROM scalar WHERE name = 'weight_decay'",
        "SELECT min(weight_decay), max(weight_decay) FROM weight",
    ):
        ((low, high),) = run.query(asked)
        if low is not None:
            return float(low), float(high)
    return None


def _setting(run: Run, name: str) -> tuple[float, float] | None:
    """A number of a lab run's optimizer, from its configuration."""
    text = next((value for key, value in _settings(run).items() if key.rpartition(".")[2] == name), None)
    try:
        return None if text is None else (float(text), float(text))
    except ValueError:
        return None


def _settings(run: Run) -> dict[str, str]:
    return dict(_flat(run.meta.get("config") or {}))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", str(value)
