"""The rule about layers: one whose growth departs from that of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.certainty import times
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.dynamics.applied_rates import applied_rates
from normscope.theory.laws.groups import GroupFit, GroupFits, holm
from normscope.theory.laws.laws import Array
from normscope.theory.measures.measures import GROUPINGS
from normscope.theory.measures.medians import robust_deviation
from normscope.words import OUTSIDE

FEWEST = 4  # layers that a comparison needs
LEVEL = 0.05
NOTICEABLE = math.log(1.25)  # growth that differs by less than a quarter matters to nobody
SAME = 0.03  # layers are never told apart more finely than this, in log growth


@dataclass(frozen=True)
class _Layer:
    fit: GroupFit
    log_growth: float
    others: float
    p_value: float

    @property
    def far(self) -> bool:
        return abs(self.log_growth - self.others) >= NOTICEABLE


def departing(known: RunEvidence) -> Judgement:
    """Layers whose growth is an outlier among the layers, at 5 % after Holm's correction."""
    fits = known.layer_fits
    layers = [] if fits is None else _layers(fits)
    if len(layers) < FEWEST:
        return Judgement(missing=known.run is None)
    odd = [each for each in layers if each.p_value < LEVEL and each.far]
    if not odd:
        growths = [math.exp(each.log_growth) for each in layers]
        spread = f"×{min(growths):.3g} to ×{max(growths):.3g}"
        doubt = max((1.0 - each.p_value for each in layers if each.far), default=0.0)
        return Judgement(checked=f"no layer departs from the others (growth {spread})", doubt=doubt)
    return Judgement(tuple(_advice(known, each) for each in odd))


def _layers(fits: GroupFits) -> list[_Layer]:
    """The layers with their growth, and how improbable it is among the others."""
    kept = [each for each in fits.groups if each.group != OUTSIDE and (each.growth or 0.0) > 0]
    growth = np.array([math.log(each.growth or 1.0) for each in kept])
    if len(kept) < FEWEST:
        return []
    others = np.array([np.median(np.delete(growth, i)) for i in range(len(growth))])
    p_values = _p_values(growth, others)
    return [_Layer(*row) for row in zip(kept, growth.tolist(), others.tolist(), p_values, strict=True)]


def _p_values(growth: Array, others: Array) -> list[float]:
    """Student's t of each distance from the median of the others, as `fit --by layer` tests exponents."""
    from scipy.special import stdtr

    scales = [robust_deviation(np.delete(growth, i) - others[i]) for i in range(len(growth))]
    scores = np.abs(growth - others) / np.maximum(scales, SAME)
    return holm(2 * stdtr(len(growth) - 2, -scores))


def _rate(known: RunEvidence, layer: str) -> str:
    """That the layer has another learning rate, which explains much, if it has."""
    if known.run is None or not known.groups:
        return ""
    rows = {row.name: GROUPINGS["layer"](row) for row in known.run.tensors() if row.tied_to is None}
    names = [name for name, place in rows.items() if place != OUTSIDE]
    applied = applied_rates(known.run, names, known.selection.stage) or []
    own, others = list[float](), list[float]()
    for name, each in zip(names, applied, strict=True):
        (own if rows[name] == layer else others).append(float(each.rates.lr.max()))
    ratio = float(np.median(own) / np.median(others)) if own and others and np.median(others) > 0 else 1.0
    return f" Its learning rate is {times(ratio)} theirs." if abs(math.log(max(ratio, 1e-9))) > 0.05 else ""


def _advice(known: RunEvidence, layer: _Layer) -> Advice:
    fit = layer.fit
    exponent = f", with exponent {fit.exponent:.2f} ({fit.interval})" if fit.differs else ""
    said = (
        f"Layer {fit.group} departs from the others: its norm changed by ×{fit.growth:.3g}, theirs by "
        f"×{math.exp(layer.others):.3g} (median){exponent}.{_rate(known, fit.group)}"
    )
    evidence: dict[str, float | str] = {
        "layer": fit.group,
        "growth": fit.growth or 0.0,
        "others": math.exp(layer.others),
        "p_value": layer.p_value,
    }
    command = known.command("fit", "--by", "layer")
    size = abs(layer.log_growth - layer.others)
    return Advice("layer", said, evidence, 1.0 - layer.p_value, command, "watch", size=size)
