"""Which columns of the weight rows hold anything: one look at all rows, instead of one for each question."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.run import Run


@dataclass(frozen=True)
class Recorded:
    """What any row of a stage has.

    `nonfinite` is a number of non-finite values other than zero, or none at all; `updates` are sums of
    single steps; the others are rates and gradients, which a monitor records.
    """

    nonfinite: bool
    updates: bool
    lr: bool
    weight_decay: bool
    grad_sumsq: bool


def recorded(run: Run, stage: str) -> Recorded:
    """What is recorded in a stage."""
    return run.remembered(("recorded", stage), lambda: _recorded(run, stage))


def _recorded(run: Run, stage: str) -> Recorded:
    asked = (
        "max(nonfinite IS NOT 0), max(dot IS NOT NULL AND prev_step = step - 1), "
        "count(lr), count(weight_decay), count(grad_sumsq)"
    )
    (found,) = run.query(f"SELECT {asked} FROM weight WHERE stage = ?", (stage,))
    return Recorded(*map(bool, found))
