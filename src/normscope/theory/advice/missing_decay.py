"""Rules about weight decay that is not there, or too weak to be there: groups that nothing brings to rest."""

from __future__ import annotations

import math

import numpy as np

from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.certainty import below, short
from normscope.theory.advice.rest_points import (
    SURE,
    Resting,
    matters,
    other_decays,
    rest,
    resting,
)
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.dynamics.group_drive import acting_rates, group_drive
from normscope.theory.dynamics.group_dynamics import continue_group
from normscope.theory.dynamics.rate_groups import RateGroup

NOTICEABLE = 1.2  # growth over the next doubling of the steps that is worth a sentence; √t has at most 1.41
IDLE = 0.05  # of θ: a decay that took less in the whole run changed nothing


def undecayed(known: RunEvidence) -> Judgement:
    """Groups without weight decay that hold much of ρ² and keep growing: nothing brings them to rest."""
    found = [_growing(known, each) for each in resting(known) if each.group.last_rates[1] == 0]
    kept = tuple(each for each in found if each is not None)
    return Judgement(kept)


def _growing(known: RunEvidence, each: Resting) -> Advice | None:
    ahead = 2.0 * float(each.group.steps[-1])
    drive = group_drive(each.group)
    if drive is None or ahead <= 0:
        return None
    later = math.sqrt(float(continue_group(each.group, np.array([ahead]))[-1]))
    factor, sure = later / each.norm, below(1 / max(drive.error, 1e-9))
    if factor < NOTICEABLE or sure < SURE:
        return None
    other, numbers, command = other_decays(known, each)
    said = (
        f"{each.words} never comes to rest: its norm {short(each.norm)} is expected at {short(later)} when "
        f"the steps have doubled at this rate ({100 * (factor - 1):+.0f} %), and each step turns it "
        f"less.{other}"
    )
    evidence: dict[str, float | str] = {
        "group": each.group.name,
        "share": each.share,
        "norm": each.norm,
        "norm_doubled": later,
    }
    return Advice(
        "undecayed", said, evidence | numbers, sure, command, "watch", size=each.share * (factor - 1)
    )


def weak_decay(known: RunEvidence) -> Judgement:
    """A weight decay that the run was too short for, or its learning rate too small."""
    total = sum(float(each.sumsq[-1]) for each in known.groups) or 1.0
    told = {each.evidence["group"] for each in rest(known).advice}  # more is known of these
    found = []
    for each in (one for one in known.groups if one.name not in told):
        decayed = (
            each.kind and each.decay_factor is not None and (each.rates.weight_decay * each.rates.lr).any()
        )
        if decayed and matters(each, total) and (taken := _taken(each)) < IDLE:
            found.append(_weak(known, each, taken))
    return Judgement(tuple(found))


def _taken(group: RateGroup) -> float:
    """1 − Π(1 − ηλ): the share of the first parameters that decay alone removed over the run."""
    edges = np.linspace(group.steps[0], group.steps[-1], 2049)
    lr, decay = acting_rates(group, group.rates).at((edges[1:] + edges[:-1]) / 2)
    return float(-np.expm1((np.log1p(-np.minimum(lr * decay, 0.999)) * np.diff(edges)).sum()))


def _weak(known: RunEvidence, group: RateGroup, taken: float) -> Advice:
    decay, steps = float(group.rates.weight_decay.max()), float(np.ptp(group.steps))
    enough = decay * math.log(2) / max(-math.log1p(-taken), 1e-300)
    said = (
        f"Weight decay {decay:g} did next to nothing: over {steps:,.0f} steps it took {100 * taken:.2g} % "
        f"of the parameters of the {group.kind} group ({group.tensors} tensors). To forget half of the start "
        f"in a run like this it would have to be {enough:.2g}."
    )
    evidence: dict[str, float | str] = {"group": group.name, "taken": taken, "half_in_run": enough}
    return Advice("weak-decay", said, evidence, 1.0, known.export(), "fine", size=IDLE - taken)
