"""Measures in long form: one row for each step, group and measure."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.remarks import Finding
from normscope.table import Table, Tabular
from normscope.theory.measures.measures import COMPOUND
from normscope.theory.measures.series_sources import Selection, Source, load, opened_run
from normscope.theory.places.recorded_norms import has_only_norms, refuse_weight_options


@dataclass(frozen=True)
class LongTable(Tabular):
    """The values of one measure, or of the parts of a compound one, by step and group.

    `scope` says which parameters were measured, empty if that is not known; `findings` is what the scan
    found wrong with the checkpoints, `notes` what is to be said about a log.
    """

    measures: tuple[str, ...]
    groups: tuple[str, ...]
    steps: tuple[int, ...]
    cells: dict[tuple[int, str, str], float]
    scope: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> Table:
        """Columns step, group, measure, value, scope: the stable JSON of `normscope show`."""
        keys = [
            (s, g, m)
            for m in self.measures
            for g in self.groups
            for s in self.steps
            if (s, g, m) in self.cells
        ]
        return Table.from_rows(
            ("step", "group", "measure", "value", "scope"),
            ([*key, self.cells[key], self.scope or None] for key in keys),
        )

    def value(self, step: int, group: str, measure: str) -> float | None:
        """One value; None where the measure does not exist."""
        return self.cells.get((step, group, measure))

    def values(self, step: int, group: str) -> list[float | None]:
        """The values of all measures for one step and group."""
        return [self.value(step, group, measure) for measure in self.measures]

    def spread(self, most: int) -> tuple[int, ...]:
        """At most `most` of the steps, evenly spaced and with both ends."""
        if len(self.steps) <= most:
            return self.steps
        return tuple(self.steps[round(i * (len(self.steps) - 1) / (most - 1))] for i in range(most))


def long_table(
    source: Source,
    measure: str | None = None,
    *,
    by: str = "total",
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
) -> LongTable:
    """The values of a measure by step and group.

    `source` and the keywords are those of `series`; `measure` may also be `budget`, for a run: growth and
    its radial and diffusive parts. `since` and `until` leave out rows and change no value: an update at
    the first step that is kept still compares with the checkpoint before it.
    """
    with opened_run(source) as run:
        if run is not None and has_only_norms(run):
            refuse_weight_options(run, measure, by, stage)
        parts = COMPOUND.get(measure or "", (measure,)) if run is not None else (measure,)
        found = [
            one
            for part in parts
            for one in load(source if run is None else run, Selection(part, by, scope, stage, since, until))
        ]
    cells = {
        (step, one.name, one.unit or "value"): value
        for one in found
        for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True)
    }
    measures = dict.fromkeys(one.unit or "value" for one in found)
    groups = dict.fromkeys(one.name for one in found)
    return LongTable(
        measures=tuple(measures),
        groups=tuple(groups),
        steps=tuple(sorted({step for step, _, _ in cells})),
        cells=cells,
        scope=found[0].scope,
        findings=found[0].findings,
        notes=found[0].notes,
    )
