"""What the overview says of one run: newest step, norm so far, alarms, or why it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.errors import NormscopeError
from normscope.run import Run
from normscope.theory.measures.measures import scope_of
from normscope.theory.measures.series_sources import Selection, load
from normscope.theory.measures.time_series import Series
from normscope.views.reports.sweep import cells_in_words, read_cells
from normscope.views.serving.served_runs import ServedRun


@dataclass(frozen=True)
class RunOverview:
    """One run in the overview; `problem` is a sentence where there is nothing else to show.

    Of a sweep, `state` says what became of its cells; it has no norms, since its cells are runs, too.
    """

    run: ServedRun
    norms: Sequence[Series] = ()
    scalars: Mapping[str, float] | None = None
    alarms: Sequence[Mapping[str, Any]] = ()
    scope: str = ""
    state: str = ""
    problem: str = ""

    @property
    def last(self) -> tuple[int, float] | None:
        """The newest step and its norm."""
        newest = [(int(each.steps[-1]), float(each.values[-1])) for each in self.norms if len(each)]
        return max(newest) if newest else None


def overview(run: ServedRun) -> RunOverview:
    """Read one run file; whatever is wrong with it becomes a sentence."""
    try:
        if run.is_sweep:
            return RunOverview(run, state=cells_in_words(read_cells(run.path)[0]))
        with Run(run.path) as opened:
            alarms = [alarm for found in opened.artifacts("alarm").values() for alarm in found]
            rows = opened.query("SELECT name, value, MAX(step) FROM scalar GROUP BY name")
            scalars = {str(name): value for name, value, _ in rows if value is not None}
            norms = load(opened, Selection())
            scope = scope_of(opened.tensors(), "body") if opened.tensors() else norms[0].scope
            return RunOverview(run, norms, scalars, alarms, scope)
    except NormscopeError as error:
        return RunOverview(run, problem=str(error))
