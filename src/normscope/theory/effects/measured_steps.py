"""Who measured the network at which step: the training itself, or `saturate` on a saved checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from normscope.rows import LIVE_PROBES, STUDY_NOTES, step_key
from normscope.run import Run

TRAINING, STUDY, UNKNOWN = "training", "saturate", ""


class _AtStep(Protocol):
    @property
    def step(self) -> int: ...


R = TypeVar("R", bound=_AtStep)


@dataclass(frozen=True)
class MeasuredSteps:
    """The steps of one stage by who measured saturation and heads there.

    Both write the same tables, and the later one replaces the earlier at a step they have in common: a step
    with a note of `saturate` is that command's.

    >>> MeasuredSteps(frozenset({0, 100}), frozenset({100})).by(0)
    'training'
    """

    probed: frozenset[int]
    studied: frozenset[int]

    def by(self, step: int) -> str:
        """TRAINING, STUDY, or UNKNOWN for rows that somebody else wrote."""
        if step in self.studied:
            return STUDY
        return TRAINING if step in self.probed else UNKNOWN


def measured_steps(run: Run, stage: str) -> MeasuredSteps:
    """Who measured the network at the steps of a stage, by the notes they left."""
    sql = "SELECT step FROM saturation WHERE stage = ? UNION SELECT step FROM head WHERE stage = ?"
    steps = {step: step_key(stage, step) for (step,) in run.query(sql, (stage, stage))}
    probed, studied = (
        frozenset(step for step, key in steps.items() if key in notes)
        for notes in (run.artifacts(LIVE_PROBES), run.artifacts(STUDY_NOTES))
    )
    return MeasuredSteps(probed, studied)


def of_one_way(
    rows: Iterable[R], measured: MeasuredSteps, way: str | None = None
) -> tuple[list[R], list[int]]:
    """The rows that are measured one way, and the steps that are left out because they were measured another.

    Numbers from a probe batch and from another text are not points of one line. Without `way`, the way with
    more steps is kept, the training's if they are equally many.
    """
    kept = list(rows)
    steps: dict[str, set[int]] = {}
    for row in kept:
        steps.setdefault(measured.by(row.step), set()).add(row.step)
    order = (TRAINING, STUDY, UNKNOWN)
    chosen = way if way is not None else max(order, key=lambda name: len(steps.get(name, ())))
    others = sorted(step for name, found in steps.items() if name != chosen for step in found)
    return [row for row in kept if measured.by(row.step) == chosen], others
