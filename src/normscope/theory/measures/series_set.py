"""The series of a source, one per group, as one result."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.anatomy import of_scope
from normscope.table import Table
from normscope.theory.measures.result_sequence import ResultSequence
from normscope.theory.measures.series_sources import Selection, Source, load
from normscope.theory.measures.time_series import Series


@dataclass(frozen=True, repr=False)
class SeriesSet(ResultSequence[Series]):
    """One series per group, in the order of the groups; a sequence of `Series`.

    >>> import normscope as ns
    >>> norms = ns.series("t5-base")
    >>> len(norms), norms[0].name, norms.measure
    (1, 't5-base', 'norm')
    >>> norms.table["step"][:3]
    [0, 5100, 10200]
    """

    measure: str
    by: str
    series: tuple[Series, ...]

    @property
    def table(self) -> Table:
        """One row per step and group: step, group, value."""
        rows = (
            (step, one.name, value)
            for one in self.series
            for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True)
        )
        return Table.from_rows(("step", "group", "value"), rows)

    @property
    def messages(self) -> tuple[str, ...]:
        """What was measured, after what is wrong with it, if anything is; and the notes about a log."""
        first = self.series[0]
        whose = of_scope(first.scope)
        said = (f"{self.measure}{whose}, by {self.by}",) if whose else ()
        return (*first.warnings, *said, *first.notes)

    @property
    def parts(self) -> tuple[Series, ...]:
        """The series."""
        return self.series


def series(
    source: Source,
    measure: str | None = None,
    *,
    by: str = "total",
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
) -> SeriesSet:
    """The values of a measure over the steps where it exists, one series per group.

    `source` is a run, the path of a run file or of a training log (CSV, JSON, TensorBoard, MLflow, Parquet,
    trainer_state.json), (steps, values), a Series, or the name of a bundled series. `measure` is norm (the
    default), rms, cosine, update, alignment, distance, growth, radial, diffusive, nonfinite, or a measure
    that a plugin recorded; of a log it names the column, by default the only one that can be the norm.
    `by` is total, layer, role, component or tensor. `scope` is body (the default: without embeddings and
    output head) or all. `stage` names one stage of a run that has several. Only the steps from `since`
    to `until` are kept.

    A plugin's measure is recorded per tensor: by="tensor" gives its values, any other grouping their
    plain mean over the group's tensors, at the steps where all of these have one.

    >>> import normscope as ns
    >>> (norm,) = ns.series("t5-base", since=510_000)
    >>> norm.steps.tolist(), norm.values.round(1).tolist()
    ([510000, 515100, 520200, 524288], [4106.6, 4128.0, 4149.3, 4166.2])
    """
    found = load(source, Selection(measure, by, scope, stage, since, until))
    return SeriesSet(found[0].unit or "value", by, tuple(found))
