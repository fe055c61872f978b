"""Every quantity that a claim can ask for: a function of one seed's trials, and the bounds of its values.

A quantity that cannot be computed is NaN, and the estimate over seeds is then unknown. So it is if a training
failed or diverged, since what it measured last is not its end; only shares say how these count.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.replication.judging.document_values import (
    Document,
    Rows,
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
    values = [field_value(document, path) if _ended(document) else None for document in documents]
    return mean([value["value"] if isinstance(value, Mapping) else value for value in values])


def largest(documents: Sequence[Document], path: str) -> float:
    """The largest value of an entry among the documents."""
    values = [field_value(document, path) if _ended(document) else None for document in documents]
    known = [float(value) for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else math.nan


def growth(documents: Sequence[Document], scope: str = "body") -> float:
    """The last norm over the first, as a geometric mean."""
    return math.exp2(mean([_change(document, scope) for document in documents]))


def share_growing(documents: Sequence[Document], scope: str = "body") -> float:
    """The share of trainings whose norm is larger at the end than at first; one that diverged has not grown.

    NaN if a training failed: it might have grown.
    """
    grown = []
    for document in documents:
        change = 0.0 if document["status"] == "diverged" else _change(document, scope)
        grown.append(None if change is None else float(change > 0))
    return mean(grown)


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

    Interpolated in log λ between the neighbouring cells; the end of the grid if all grow or all shrink. NaN
    if a cell did not finish, or if the norm grows again at a larger weight decay: there is no threshold then.
    """
    if not documents:
        return math.nan
    nearest = min({float(d["lr"]) for d in documents}, key=lambda rate: abs(math.log(rate / lr)))
    row = sorted((d for d in documents if float(d["lr"]) == nearest), key=lambda d: float(d["weight_decay"]))
    changes = [_change(document, scope) for document in row]
    known = [change for change in changes if change is not None]
    grows = [change > 0 for change in known]
    if len(known) < len(changes) or grows != sorted(grows, reverse=True):
        return math.nan
    decays = [float(document["weight_decay"]) for document in row]
    last = sum(grows)  # the first that shrinks
    if last in (0, len(known)):
        return decays[0] if last == 0 else decays[-1]
    share = known[last - 1] / (known[last - 1] - known[last])
    return math.exp(math.log(decays[last - 1]) + share * math.log(decays[last] / decays[last - 1]))


def saturation(
    documents: Sequence[Document], when: str = "end", layer: str = "last", until: int | None = None
) -> float:
    """Saturation at the `start`, the `end`, or at its `peak`; of the last layer, or the mean over all."""
    return mean([_saturation(document, when, layer, until) for document in documents])


def _saturation(document: Document, when: str, layer: str, until: int | None) -> float | None:
    """That of one training; None if it was not measured, or not at the end."""
    curve = saturation_curve(document, layer)
    kept = [value for step, value in curve if until is None or step <= until]
    if not kept or (when != "start" and not _ended(document)):
        return None
    if when == "end" and until is None and curve[-1][0] < document.get("steps", 0):
        return None
    return (
        math.nan
        if math.isnan(math.fsum(kept))
        else {"start": kept[0], "end": kept[-1], "peak": max(kept)}[when]
    )


def saturation_rise(documents: Sequence[Document], layer: str = "last") -> float:
    """Saturation at the end minus saturation before training."""
    return saturation(documents, "end", layer) - saturation(documents, "start", layer)


def share_converged(documents: Sequence[Document]) -> float:
    """The share of layers, at the last measured step, whose saturation has converged."""
    shares = []
    for document in documents:
        rows = (document.get("saturation") or []) if _ended(document) else []
        last = max((row["step"] for row in rows), default=None)
        shares.append(mean([float(bool(row["converged"])) for row in rows if row["step"] == last]))
    return mean(shares)


def share_of_heads(documents: Sequence[Document], types: Sequence[str], when: str = "end") -> float:
    """The share of heads of these types (argmax, mean, mixed, undecided …)."""
    found = [_heads(document, when) for document in documents]
    return (
        mean([float(head["type"] in types) for heads in found for head in heads]) if all(found) else math.nan
    )


def share_at_leak(documents: Sequence[Document], tolerance: float = 0.01) -> float:
    """The share of heads that attend to (T(T−1)/2 + 1)/T positions: those that tie over the future."""
    return mean([float(abs(ratio - 1) <= tolerance) for ratio in _leak_ratios(documents)])


def largest_at_leak(documents: Sequence[Document]) -> float:
    """The largest number of positions of any head, over the number that ties over the future give."""
    return max(_leak_ratios(documents), default=math.nan)


def _leak_ratios(documents: Sequence[Document]) -> list[float]:
    """Positions of each head over `leak_positions`; none if a head or a training has no number."""
    found = [(_heads(document, "end"), document) for document in documents]
    counts = [(head["positions"], document["length"]) for heads, document in found for head in heads]
    if not all(heads for heads, _ in found) or any(count is None for count, _ in counts):
        return []
    return [count / leak_positions(length) for count, length in counts]


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
    """The share of trainings whose entry `able` is at least `least`; NaN if a training failed."""
    if any(document["status"] == "failed" for document in documents):
        return math.nan
    capable = [d for d in _finished(documents) if (field_value(d, able) or 0.0) >= least]
    return len(capable) / len(documents) if documents else math.nan


def _finished(documents: Sequence[Document]) -> list[Document]:
    return [document for document in documents if _ended(document)]


def _ended(document: Document) -> bool:
    return bool(document["status"] == "done")


def _change(document: Document, scope: str) -> float | None:
    """log₂ of the last norm over the first; None for a training without an end."""
    return measured_change(document, _norm(scope)) if _ended(document) else None


def _heads(document: Document, when: str) -> Rows:
    """The heads at the start or the end; none if the training has no end."""
    return heads_at(document, when) if when == "start" or _ended(document) else []


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


def option_problem(quantity: str, options: Mapping[str, Any]) -> str | None:
    """Say which option of a quantity is unknown or missing; None if all is well."""
    parameters = list(inspect.signature(QUANTITIES[quantity].compute).parameters.values())[1:]
    known = {parameter.name for parameter in parameters}
    needed = {parameter.name for parameter in parameters if parameter.default is parameter.empty}
    if unknown := sorted(set(options) - known):
        return f"the quantity {quantity!r} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}"
    if missing := sorted(needed - set(options)):
        return f"the quantity {quantity!r} needs the option {missing[0]!r}"
    return None
