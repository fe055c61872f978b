"""The numbers of a claim, in each of its columns, from the documents of its experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from normscope.replication.claim import Claim, Column, Number
from normscope.replication.judging.condition import Measured
from normscope.replication.judging.document_values import Document, by_seed, field_value, matches
from normscope.replication.judging.quantities import QUANTITIES
from normscope.replication.judging.seed_interval import UNKNOWN, Estimate, seed_interval

Results = Mapping[str, Sequence[Document]]
"""Experiment → the documents of its trials."""


def measure_claim(claim: Claim, results: Results) -> Measured:
    """Return the published numbers, and the measured ones of each column."""
    published = {n.name: Estimate(n.paper) for n in claim.numbers if n.paper is not None}
    measured = {
        name: {n.name: _estimate(n, column, results) for n in claim.numbers if name in n.columns}
        for name, column in claim.columns.items()
    }
    return {"paper": published, **measured}


def _estimate(number: Number, column: Column, results: Results) -> Estimate:
    documents = [d for d in results.get(column.experiment, ()) if matches(d, column.where)]
    chosen = [document for document in documents if matches(document, number.where)]
    own = _own_interval(number, chosen)
    if own is not None:
        return own
    values = _by_seed(number, chosen)
    bounds = number.limits
    if number.minus is not None:
        other = _by_seed(number, [d for d in documents if matches(d, {**number.where, **number.minus})])
        values = {seed: value - other.get(seed, math.nan) for seed, value in values.items()}
        bounds = (-math.inf, math.inf)
    return seed_interval(list(values.values()), bounds)


def _by_seed(number: Number, documents: Sequence[Document]) -> dict[int, float]:
    compute = QUANTITIES[number.quantity].compute
    return {seed: compute(group, **number.options) for seed, group in by_seed(documents).items()}


def _own_interval(number: Number, documents: Sequence[Document]) -> Estimate | None:
    """A number of a single series, which has no seed: it brings its interval, or is exact."""
    if number.quantity != "field" or len(documents) != 1 or "seed" in documents[0]["changes"]:
        return None
    value = field_value(documents[0], str(number.options["path"]))
    if isinstance(value, Mapping):
        return Estimate(value["value"], value["low"], value["high"])
    return UNKNOWN if value is None else Estimate(float(value), float(value), float(value))
