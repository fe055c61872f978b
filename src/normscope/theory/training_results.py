"""The results of a training run that recorded its norms, and no other statistics of its weights."""

from __future__ import annotations

from dataclasses import replace

from normscope.anatomy import rest_words
from normscope.run import Run
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.answer import Ends, Results, series_results
from normscope.theory.forecasts.rate_sources import recorded_groups
from normscope.theory.laws.natural_clock import recorded_rates
from normscope.theory.measures.series_set import series
from normscope.theory.measures.series_sources import Selection
from normscope.theory.measures.time_series import Series
from normscope.theory.places.recorded_norms import recorded_scopes


def training_results(run: Run) -> Results:
    """What a report draws of the recorded norms, with the recorded learning rates."""
    first, *others = (series(run, scope=scope)[0] for scope in recorded_scopes(run))
    groups, _ = recorded_groups(run, first)
    known = RunEvidence(run.path, None, Selection())
    found = series_results(replace(first, name=first.subject), recorded_rates(run), groups, known)
    beside = _ends(first, others[0]) if others else None
    return replace(found, highlights=replace(found.highlights, beside=beside))


def _ends(first: Series, other: Series) -> Ends:
    return Ends(rest_words(first.scope), float(other.values[0]), float(other.values[-1]))
