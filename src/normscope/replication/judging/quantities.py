"""Every quantity that a claim can ask for: a function of one seed's trials, and the bounds of its values.

A quantity that cannot be computed is NaN, and the estimate over seeds is then unknown. `docs/replication.md`
explains each; a claim names it, and its options, in its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from normscope.replication.judging.document_values import (
    Document,
    field_value,
    heads_at,
    mean,
    saturation_curve,
)
from normscope.theory.dynamics.growth_boundary import measured_change, predicted_change

SHARE = (0.0, 1.0)
COSINE = (-1.0, 1.0)
ANY = (-math.inf, math.inf)


@dataclass(frozen=True)
class Quantity:
    """A function of the documents of one seed and its options, and the bounds of its values."""

    compute: Callable[..., float]
    bounds: tuple[float, float] = ANY


def field(documents: Sequence[Document], path: str) -> float:
    """The mean of an entry of the documents."""
    values = [field_value(document, path) for document in documents]
    return mean([value["value"] if isinstance(value, Mapping) else value for value in values])


def largest(documents: Sequence[Document], path: str) -> float:
    """The largest value of an entry among the documents."""
    values = [field_value(document, path) for document in documents]
    return math.nan if not values or None in values else max(map(float, values))


def growth(documents: Sequence[Document], scope: str = "body") -> float:
    """The last norm over the first, as a geometric mean."""
    changes = [measured_change(document, _norm(scope)) for document in documents]
    return math.exp2(mean(changes))


def share_growing(documents: Sequence[Document], scope: str = "body") -> float:
    """The share of trainings whose norm is larger at the end than at first; diverged ones do not count."""
    changes = [measured_change(document, _norm(scope)) for document in _finished(documents)]
    return mean([None if change is None else float(change > 0) for change in changes])


def signs_predicted(documents: Sequence[Document], scope: str = "body") -> float:
    """The share of trainings whose growth or shrinking the recursion predicts from the measured updates."""
    pairs = [
        (measured_change(document, _norm(scope)), predicted_change(document, _norm(scope)))
        for document in _finished(documents)
    ]
    known = [
        (measured, predicted)
        for measured, predicted in pairs
        if measured is not None and predicted is not None
    ]
    return mean([float((measured > 0) == (predicted > 0)) for measured, predicted in known])


def decay_threshold(documents: Sequence[Document], scope: str = "body", lr: float = 1e-3) -> float:
    """The weight decay at which growth turns into shrinking at the learning rate nearest to `lr`.

    Interpolated in log λ between the neighbouring cells; the end of the grid if all grow or all shrink.
    """
    done = _finished(documents)
    if not done:
        return math.nan
    nearest = min({float(d["lr"]) for d in done}, key=lambda rate: abs(math.log(rate / lr)))
    row = sorted((d for d in done if float(d["lr"]) == nearest), key=lambda d: float(d["weight_decay"]))
    points = [(float(d["weight_decay"]), measured_change(d, _norm(scope))) for d in row]
    for (low, before), (high, after) in pairwise(points):
        if before is not None and after is not None and before > 0 >= after:
            share = before / (before - after)
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    grows = all(change is not None and change > 0 for _, change in points)
    return points[-1][0] if grows else points[0][0]


def saturation(
    documents: Sequence[Document], when: str = "end", layer: str = "last", until: int | None = None
) -> float:
    """Saturation at the `start`, the `end`, or at its `peak`; of the last layer, or the mean over all."""
    values = []
    for document in documents:
        curve = saturation_curve(document, layer)
        kept = [value for step, value in curve if until is None or step <= until]
        chosen = {"start": kept[0], "end": kept[-1], "peak": max(kept)}[when] if kept else None
        values.append(chosen)
    return mean(values)


def saturation_rise(documents: Sequence[Document], layer: str = "last") -> float:
    """Saturation at the end minus saturation before training."""
    return saturation(documents, "end", layer) - saturation(documents, "start", layer)


def share_converged(documents: Sequence[Document]) -> float:
    """The share of layers, at the last measured step, whose saturation has converged."""
    shares = []
    for document in documents:
        rows = document.get("saturation") or []
        last = max((row["step"] for row in rows), default=None)
        shares.append(mean([float(bool(row["converged"])) for row in rows if row["step"] == last]))
    return mean(shares)


def share_of_heads(documents: Sequence[Document], types: Sequence[str], when: str = "end") -> float:
    """The share of heads of these types (argmax, mean, mixed, undecided …)."""
    kinds = [head["type"] for document in documents for head in heads_at(document, when)]
    return mean([float(kind in types) for kind in kinds])


def share_at_leak(documents: Sequence[Document], tolerance: float = 0.01) -> float:
    """The share of heads that attend to (T(T−1)/2 + 1)/T positions: those that tie over the future."""
    found = []
    for document in documents:
        expected = leak_positions(document["length"])
        counts = [head["positions"] for head in heads_at(document, "end")]
        found += [float(abs(count - expected) <= tolerance * expected) for count in counts]
    return mean(found)


def largest_at_leak(documents: Sequence[Document]) -> float:
    """The largest number of positions of any head, over the number that ties over the future give."""
    return max(
        (
            head["positions"] / leak_positions(document["length"])
            for document in documents
            for head in heads_at(document, "end")
        ),
        default=math.nan,
    )


def leak_positions(length: int) -> float:
    """Mean number of positions of a head that attends to all future positions, and at the end to the last.

    >>> round(leak_positions(83), 6)
    41.012048
    """
    return (length * (length - 1) / 2 + 1) / length


def rank_correlation(documents: Sequence[Document], x: str, y: str) -> float:
    """Spearman's correlation between two entries over the trainings of a seed."""
    from scipy.stats import spearmanr

    pairs = [(entry(document, x), entry(document, y)) for document in _finished(documents)]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(known) < 4 or len({a for a, _ in known}) < 2 or len({b for _, b in known}) < 2:
        return math.nan
    return float(spearmanr([a for a, _ in known], [b for _, b in known]).statistic)


def entry(document: Document, name: str) -> float | None:
    """An entry of a document, or `saturation`: that of the last layer at the end."""
    if name == "saturation":
        curve = saturation_curve(document, "last")
        return curve[-1][1] if curve else None
    value: float | None = field_value(document, name)
    return value


def among_capable(
    documents: Sequence[Document], path: str, able: str, least: float, pick: str = "mean"
) -> float:
    """The mean or largest value of `path` among trainings whose `able` is at least `least`; NaN if none."""
    kept = [d for d in _finished(documents) if (field_value(d, able) or 0.0) >= least]
    values = [field_value(document, path) for document in kept]
    if not values or None in values:
        return math.nan
    return max(values) if pick == "max" else mean(values)


def share_capable(documents: Sequence[Document], able: str, least: float) -> float:
    """The share of trainings whose entry `able` is at least `least`."""
    return mean([float((field_value(document, able) or 0.0) >= least) for document in documents])


def _finished(documents: Sequence[Document]) -> list[Document]:
    return [document for document in documents if document["status"] == "done"]


def _norm(scope: str) -> str:
    return {"body": "body_norm", "all": "norm"}[scope]


QUANTITIES: Mapping[str, Quantity] = {
    "field": Quantity(field),
    "largest": Quantity(largest),
    "growth": Quantity(growth, (0.0, math.inf)),
    "share-growing": Quantity(share_growing, SHARE),
    "signs-predicted": Quantity(signs_predicted, SHARE),
    "decay-threshold": Quantity(decay_threshold, (0.0, math.inf)),
    "saturation": Quantity(saturation, COSINE),
    "saturation-rise": Quantity(saturation_rise),
    "share-converged": Quantity(share_converged, SHARE),
    "share-of-heads": Quantity(share_of_heads, SHARE),
    "share-at-leak": Quantity(share_at_leak, SHARE),
    "largest-at-leak": Quantity(largest_at_leak, (0.0, math.inf)),
    "rank-correlation": Quantity(rank_correlation, COSINE),
    "among-capable": Quantity(among_capable),
    "share-capable": Quantity(share_capable, SHARE),
}


def options_of(quantity: str) -> dict[str, Any]:
    """The options of a quantity with their defaults, from its function."""
    import inspect

    parameters = list(inspect.signature(QUANTITIES[quantity].compute).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters}
