"""What a run knows, computed when a rule asks for it, and once."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from normscope.errors import NormscopeError, SeriesError
from normscope.remarks import Finding
from normscope.rows import HeadRow, SaturationRow
from normscope.run import Run
from normscope.theory.dynamics.interval_sums import IntervalSums, sums_of_group
from normscope.theory.dynamics.rate_groups import RateGroup, rates_until
from normscope.theory.forecasts.forecast import forecast_series
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.forecasts.rate_sources import recorded_groups
from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE
from normscope.theory.laws.groups import GroupFits, fit_groups
from normscope.theory.laws.laws import Array
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.measures import group, stage_of
from normscope.theory.measures.series_sources import Selection, Source, load_one
from normscope.theory.measures.time_series import Series, clean_series

MOST_LAYERS = 64  # more layers than this are not fitted one by one
FEWEST_POINTS = 5  # of the norm: below, nothing can be said about its course
AHEAD = 2  # the horizon of the forecast, in lengths of the run so far


@dataclass(frozen=True, eq=False)
class RunEvidence:
    """A run, or another source of norms, and which part of it is asked about."""

    source: Source
    run: Run | None
    selection: Selection

    def command(self, verb: str, *options: object) -> str:
        """The command line that shows something about the same part of the same source."""
        words = ["normscope", verb, self.name, *map(str, options), *self._selected()]
        return shlex.join(words)

    def export(self) -> str:
        """The command that writes every recorded row: sums of single updates, learning rates, decays."""
        return shlex.join(["normscope", "export", self.name, "-o", "weights.csv"])

    def updates_command(self, measure: str) -> str:
        """The command that shows a measure of single updates; with checkpoints, `show` compares those."""
        saved = self.run is not None and sum(row.stage == self.stage for row in self.run.checkpoints()) > 1
        return self.export() if saved else self.command("show", "--measure", measure)

    @property
    def name(self) -> str:
        """The source as the command line spells it."""
        if self.run is not None:
            return str(self.run.path)
        return str(self.source) if isinstance(self.source, (str, Path)) else self.norms.name

    def _selected(self) -> list[str]:
        chosen = self.selection
        given: dict[str, Any] = {"scope": chosen.scope, "stage": chosen.stage or None, "until": chosen.until}
        given |= {"since": chosen.since or None, "measure": chosen.measure}
        return [
            word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))
        ]

    @cached_property
    def norms(self) -> Series:
        """The norm over the steps."""
        return load_one(self.run or self.source, self.selection, FEWEST_POINTS)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the scan found wrong with the series."""
        return self.norms.findings

    @property
    def now(self) -> int:
        """The last step."""
        return int(self.norms.steps.max())

    @cached_property
    def groups(self) -> tuple[RateGroup, ...]:
        """The parameter groups with their recorded rates, the largest first; none if no rates are known."""
        chosen = self.selection
        found, _ = recorded_groups(self.run or self.source, self.norms, chosen.scope, chosen.stage)
        kept = (_between(each, chosen.since, chosen.until) for each in found)
        return tuple(sorted((g for g in kept if len(g.steps)), key=lambda g: -float(g.sumsq[-1])))

    @property
    def main(self) -> RateGroup:
        """The largest group that is trained, whose rates a plan of `forecast` gives."""
        return next((each for each in self.groups if each.rates.lr.any()), self.groups[0])

    @cached_property
    def forecast(self) -> Forecast | None:
        """The forecast at twice the last step; None where there are too few points."""
        if len(clean_series(self.norms).series) < ENOUGH_TO_CHOOSE:
            return None
        try:
            return forecast_series(self.norms, max(AHEAD * self.now, 1), groups=self.groups)
        except NormscopeError:
            return None

    @cached_property
    def layer_fits(self) -> GroupFits | None:
        """The law of every layer; None without layers, with too many, or with too few points."""
        if self.run is None or len(self.norms) < ENOUGH_TO_CHOOSE:
            return None
        chosen = self.selection
        layers = group(self.run, by="layer", scope=chosen.scope or "body", stage=chosen.stage).groups
        if not 1 < len(layers) <= MOST_LAYERS:
            return None
        window: dict[str, Any] = {"since": chosen.since, "until": chosen.until}
        try:
            return fit_groups(self.run, by="layer", scope=chosen.scope, stage=chosen.stage, **window)
        except SeriesError:
            return None

    @cached_property
    def updates(self) -> IntervalSums | None:
        """The sums of single updates over the whole scope; None if no monitor recorded any."""
        if self.run is None:
            return None
        chosen = self.selection
        found = group(self.run, scope=chosen.scope or "body", stage=chosen.stage, pairs="updates")
        kept = sums_of_group(found, 0).between(chosen.since, chosen.until)
        return kept if len(kept.steps) else None

    @cached_property
    def tensors(self) -> Grouped:
        """The sums of every tensor of the run within the window, of single updates if there are any."""
        assert self.run is not None
        chosen, pairs = self.selection, None if self.updates is None else "updates"
        found = group(self.run, by="tensor", scope=chosen.scope or "body", stage=chosen.stage, pairs=pairs)
        return found.between(chosen.since, np.inf if chosen.until is None else chosen.until)

    def rows(self, kind: type[HeadRow] | type[SaturationRow]) -> list[dict[str, Any]]:
        """What was measured by running the network: the rows of one kind, in the window, by step."""
        if self.run is None:
            return []
        stage, chosen = self.stage, self.selection
        last = np.inf if chosen.until is None else chosen.until
        return [
            row
            for row in self.run.table(kind)
            if row["stage"] == stage and chosen.since <= float(row["step"] or 0) <= last
        ]

    @property
    def stage(self) -> str:
        """The stage that is meant, "" for a source without stages."""
        return "" if self.run is None else stage_of(self.run, self.selection.stage)

    def scalar(self, name: str) -> tuple[Array, Array]:
        """Steps and values of a number that was logged, within the window."""
        if self.run is None:
            return np.zeros(0), np.zeros(0)
        sql = (
            "SELECT step, value FROM scalar WHERE name = ? AND stage = ? AND value IS NOT NULL ORDER BY step"
        )
        rows = np.array(self.run.query(sql, (name, self.stage)), dtype=np.float64).reshape(-1, 2)
        last = np.inf if self.selection.until is None else self.selection.until
        rows = rows[(rows[:, 0] >= self.selection.since) & (rows[:, 0] <= last) & np.isfinite(rows[:, 1])]
        return rows[:, 0], rows[:, 1]


def _between(found: RateGroup, since: int, until: int | None) -> RateGroup:
    """The points of a group from `since` to `until`, and its rates up to there."""
    kept = found.steps >= since
    cut: dict[str, Any] = {
        name: None if (values := getattr(found, name)) is None else values[kept]
        for name in ("steps", "sumsq", "previous", "dot", "sumsq_delta")
    }
    cut["rates"] = found.rates if until is None else rates_until(found.rates, until)
    later: RateGroup = replace(found, **cut)
    return later if until is None else later.until(until)
