"""Tensors that are equal at all checkpoints: frozen layers, or constants that no rule recognised.

Only the user can tell them apart, so those that matter for the norm are named first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape

from normscope.run import Run
from normscope.words import joined, some

MATTERS = 0.05
"""Constants that hold more than this share of ‖θ‖² are named first."""
SHOWN = 3


@dataclass(frozen=True)
class ConstantGroup:
    """Tensors that never change and differ only by the number of their layer; `pattern` matches them."""

    pattern: str
    tensors: int
    share: float

    @property
    def option(self) -> str:
        """The pattern as a value of --skip."""
        return escape(self.pattern) if self.tensors == 1 else self.pattern


def constant_tensors(run: Run) -> list[str]:
    """Names of the tensors that are the same at every checkpoint; none with a single checkpoint.

    One step of a live run may change nothing (a learning rate of zero), so two are needed there.
    """
    (checkpoints,) = run.query("SELECT count(*) FROM checkpoint")[0]
    moved = "EXISTS(SELECT 1 FROM weight WHERE stage = ? AND tensor = id AND sumsq_delta > 0)"
    sql = f"SELECT id FROM tensor WHERE {moved}"
    changing = {row[0] for stage in run.stages() for row in run.query(sql, (stage,))}
    rest = [tensor for tensor in run.tensors() if tensor.tied_to is None and tensor.id not in changing]
    fewest = 1 if checkpoints > 1 else 2
    return [tensor.name for tensor in rest if _comparisons(run, tensor.id) >= fewest]


def _comparisons(run: Run, tensor: int) -> int:
    sql = "SELECT count(sumsq_delta) FROM weight WHERE stage = ? AND tensor = ?"
    return sum(int(run.query(sql, (stage, tensor))[0][0]) for stage in run.stages())


def constant_groups(names: Sequence[str], shares: Mapping[str, float]) -> list[ConstantGroup]:
    """The constants of a run, the largest first; `shares` are those of all its tensors in ‖θ‖²."""
    constant = set(names)
    found: dict[str, list[str]] = {}
    for name in names:
        layers = re.sub(r"(?<![^./])[0-9]+(?![^./])", "*", name)
        alike = all(other in constant for other in shares if fnmatchcase(other, layers))
        found.setdefault(layers if alike else name, []).append(name)
    groups = [
        ConstantGroup(members[0] if len(members) == 1 else pattern, len(members), _sum(members, shares))
        for pattern, members in found.items()
    ]
    return sorted(groups, key=lambda group: -group.share)


def _sum(names: Sequence[str], shares: Mapping[str, float]) -> float:
    return sum(shares.get(name, 0.0) for name in names)


def constant_sentences(groups: Sequence[ConstantGroup]) -> tuple[list[str], list[str]]:
    """One sentence about the constants that matter for the norm, and one about the others."""
    large = [group for group in groups if group.share > MATTERS]
    small = [group for group in groups if group.share <= MATTERS]
    return [_to_be_decided(large)] if large else [], [_in_passing(small)] if small else []


def _to_be_decided(groups: Sequence[ConstantGroup]) -> str:
    """The user must say what these are: they change the norm."""
    if len(groups) == 1 and groups[0].tensors == 1:
        what = f"{groups[0].pattern} never changes and holds {percent(groups[0].share)} of ‖θ‖²"
        condition = "if it is a constant and not a frozen parameter, leave it out with"
    else:
        several = [f"{g.pattern} ({_count(g.tensors)}, {percent(g.share)})" for g in groups[:SHOWN]]
        more = [f"{len(groups) - SHOWN} more"] if len(groups) > SHOWN else []
        total = percent(sum(group.share for group in groups))
        what = f"{joined([*several, *more])} never change and hold {total} of ‖θ‖²"
        condition = "if they are constants and not frozen parameters, leave them out with"
    options = " ".join(f"--skip '{group.option}'" for group in groups[:SHOWN])
    return f"{what}: {condition} {options}"


def _count(tensors: int) -> str:
    return "1 tensor" if tensors == 1 else f"{tensors} tensors"


def _in_passing(groups: Sequence[ConstantGroup]) -> str:
    count = sum(group.tensors for group in groups)
    verb = "changes" if count == 1 else "change"
    shown = some([group.pattern for group in groups], SHOWN)
    return f"{_count(count)} never {verb} ({shown}): frozen, or constants; leave constants out with --skip"


def percent(share: float) -> str:
    """A share as a percentage, with a digit more where it is small.

    >>> percent(0.61), percent(0.004)
    ('61 %', '0.4 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"
