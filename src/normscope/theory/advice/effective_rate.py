"""Rules about the effective learning rate: how much a step moves the parameters, relative to their size.

The measure is ‖Δ‖/ρ of single updates over the whole scope. What the schedule did on purpose is divided out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.certainty import below, mean_and_error, times
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.dynamics.interval_sums import IntervalSums
from normscope.theory.laws.laws import Array

WINDOW = 0.1  # the share of the records that counts as the beginning, and as now
FEWEST = 30  # records: three in each window
UNPLANNED = 2.5  # a fall by this factor beyond the schedule's is worth a sentence
SHRUNK = 0.7  # of the norm after warm-up
SURELY = 2.0  # and it must be this large for sure
SURE = 0.9
IDLE = 0.01  # of the path: less is nothing (the last third of a cosine to zero still moves 6 % of it)
LOWERED = 0.5  # the mean rate of the last third over that before: above, the schedule is no schedule
GAINED = 0.02  # of the loss won before: a last third that won less won nothing


def _no_updates(known: RunEvidence) -> Judgement:
    if known.run is None or not known.groups:
        return Judgement(missing=True)  # `rest` says that rates are
    return Judgement(
        missing=True,
        unknown="Single updates were not recorded (checkpoints were scanned), so nothing is said about the "
        "effective learning rate: train with ns.Monitor(model, optimizer, 'run.db').",
    )


@dataclass(frozen=True)
class _Fall:
    """By which factor ‖Δ‖/ρ fell from the first window after warm-up to the last, and why."""

    first: float
    last: float
    rate: float
    norm: float
    error: float

    @property
    def whole(self) -> float:
        return self.first / self.last

    @property
    def unplanned(self) -> float:
        return self.whole / self.rate


def slowing(known: RunEvidence) -> Judgement:
    """The effective learning rate fell much further than the schedule lowered the learning rate."""
    updates = known.updates
    if updates is None or not known.groups:
        return _no_updates(known)
    fall = _fall(known, updates)
    if fall is None:
        return Judgement()
    sure = below(math.log(fall.unplanned / SURELY) / max(fall.error, 1e-9))
    if fall.norm < SHRUNK:
        return Judgement()  # the norm fell: that is the news, and another rule's
    if fall.unplanned < UNPLANNED or sure < SURE:
        beyond = max(fall.unplanned, 1 / fall.unplanned)
        doubt = below(math.log(fall.unplanned / UNPLANNED) / max(fall.error, 1e-9))
        checked = f"the effective learning rate follows the schedule within {beyond:.2g} ×"
        return Judgement(checked=checked, doubt=doubt)
    rest = fall.unplanned / fall.norm
    said = (
        f"The effective learning rate ‖Δ‖/ρ fell {times(fall.whole)} since warm-up ({fall.first:.3g} → "
        f"{fall.last:.3g}){_planned(fall.rate)}: {_causes(fall.norm, rest)}."
    )
    evidence: dict[str, float | str] = {
        "first": fall.first,
        "last": fall.last,
        "factor": fall.whole,
        "by_rate": fall.rate,
        "by_norm": fall.norm,
        "by_updates": rest,
    }
    command = known.updates_command("update")
    return Judgement((Advice("slowing", said, evidence, sure, command, "watch", math.log(fall.unplanned)),))


def _planned(rate: float) -> str:
    if rate >= 1.05:
        return f", the learning rate itself only {times(rate)}"
    return " although the learning rate was not lowered"


def _causes(norm: float, updates: float) -> str:
    """What the fall beyond the schedule is made of: a larger norm, smaller updates, or both."""
    if updates < 1.1:
        return f"the norm grew {times(norm)}, and the same updates turn it less"
    if norm < 1.1:
        return f"the updates became {times(updates)} smaller"
    return f"beyond that, the norm grew {times(norm)} and the updates became {times(updates)} smaller"


def _fall(known: RunEvidence, updates: IntervalSums) -> _Fall | None:
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = np.sqrt(updates.sumsq_delta / updates.sumsq_previous)
    rates = known.main.rates.at(updates.steps)[0]
    kept = np.isfinite(turned) & (turned > 0) & (rates > 0)
    if kept.sum() < FEWEST:
        return None
    turned, rates, norms = turned[kept], rates[kept], np.sqrt(updates.sumsq_previous[kept])
    size = max(3, round(WINDOW * len(turned)))
    begin = int(np.flatnonzero(rates >= 0.9 * rates.max())[0])  # warm-up is over
    if begin + 2 * size > len(turned):
        return None
    windows = slice(begin, begin + size), slice(-size, None)
    (a, ea), (b, eb) = (mean_and_error(np.log(turned[w])) for w in windows)
    lr, norm = (np.exp(np.log(x[windows[0]]).mean() - np.log(x[windows[1]]).mean()) for x in (rates, norms))
    return _Fall(math.exp(a), math.exp(b), float(lr), float(1 / norm), math.hypot(ea, eb))


def idle_end(known: RunEvidence) -> Judgement:
    """The last third of a schedule moved the parameters by next to nothing, and won no loss."""
    updates = known.updates
    if updates is None or not known.groups or len(updates.steps) < FEWEST:
        return Judgement(missing=updates is None or not known.groups)
    steps, cut = updates.steps, float(updates.steps[0] + 2 / 3 * np.ptp(updates.steps))
    rates = known.main.rates.at(steps)[0]
    late = steps > cut
    if late.all() or not rates[~late].mean() > 0 or rates[late].mean() >= LOWERED * rates[~late].mean():
        return Judgement()
    share, error = _share(np.sqrt(updates.sumsq_delta), steps, late)
    moved = f"{100 * share:.2g} % of all movement"
    won = _won(known, cut)
    sure = min(below((IDLE - share) / max(error, 1e-12)), won[0] if won else 1.0)
    if sure < SURE:
        fell = f", and the loss went from {won[1]:.4g} to {won[2]:.4g}" if won else ""
        return Judgement(checked=f"the schedule's last third made {moved}{fell}", doubt=sure)
    loss = f" and the loss went from {won[1]:.4g} to {won[2]:.4g}" if won else ""
    said = (
        f"The schedule's last third did nothing: after step {cut:,.0f} the updates made {moved}{loss}. "
        f"End there, or stretch the schedule over the whole run."
    )
    evidence: dict[str, float | str] = {"share": share, "since": cut}
    evidence |= {"loss_before": won[1], "loss_after": won[2]} if won else {}
    command = known.updates_command("update")
    return Judgement((Advice("idle", said, evidence, sure, command, "act", size=1.0),))


def _share(lengths: Array, steps: Array, late: NDArray[np.bool_]) -> tuple[float, float]:
    """The late share of Σ‖Δ‖, each record standing for the steps around it; and its standard error."""
    widths = np.gradient(steps)
    ahead, before = (lengths * widths)[late], (lengths * widths)[~late]
    share = float(ahead.sum() / (ahead.sum() + before.sum()))
    mean, error = mean_and_error(lengths[late])
    return share, share * error / mean if mean > 0 else 0.0


def _won(known: RunEvidence, cut: float) -> tuple[float, float, float] | None:
    """How sure it is that the loss fell by less than GAINED of what it fell before; before and after."""
    steps, loss = known.scalar("loss")
    if len(loss) < FEWEST:
        return None
    size = max(3, round(WINDOW * len(loss)))
    middle = int(np.searchsorted(steps, cut))
    if middle < 2 * size or len(loss) - middle < size:
        return None
    (first, _), (before, a), (after, b) = (
        mean_and_error(loss[part])
        for part in (slice(0, size), slice(middle - size, middle), slice(-size, None))
    )
    allowed = GAINED * max(first - before, 0.0)
    return below((allowed - (before - after)) / max(math.hypot(a, b), 1e-12)), before, after
