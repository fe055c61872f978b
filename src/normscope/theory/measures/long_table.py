"""Measures in long form: one row for each step, group and measure."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.run import Run
from normscope.table import Table, Tabular
from normscope.theory.measures.measures import COMPOUND, run_series


@dataclass(frozen=True)
class LongTable(Tabular):
    """The values of one measure, or of the parts of a compound one, by step and group."""

    measures: tuple[str, ...]
    groups: tuple[str, ...]
    steps: tuple[int, ...]
    cells: dict[tuple[int, str, str], float]

    @property
    def table(self) -> Table:
        """Columns step, group, measure, value: the stable JSON of `normscope show`."""
        keys = [
            (s, g, m)
            for m in self.measures
            for g in self.groups
            for s in self.steps
            if (s, g, m) in self.cells
        ]
        return Table.from_rows(
            ("step", "group", "measure", "value"), ([*key, self.cells[key]] for key in keys)
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
    run: Run, measure: str = "norm", *, by: str = "total", scope: str = "body", stage: str | None = None
) -> LongTable:
    """The values of a measure by step and group.

    `measure` is one of MEASURES, a measure that a plugin recorded (see `series`), or `budget`: growth and
    its radial and diffusive parts.
    """
    measures = COMPOUND.get(measure, (measure,))
    cells: dict[tuple[int, str, str], float] = {}
    groups: dict[str, None] = {}
    for name in measures:
        for one in run_series(run, name, by=by, scope=scope, stage=stage):
            groups.setdefault(one.name)
            for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True):
                cells[step, one.name, name] = value
    return LongTable(measures, tuple(groups), tuple(sorted({step for step, _, _ in cells})), cells)
