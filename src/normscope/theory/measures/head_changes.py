"""Which attention heads changed type between checkpoints, or between two models.

A head that is undecided has no known type: it never counts as changed, nor as unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from normscope.errors import SeriesError, UsageError
from normscope.run import HeadRow, Run
from normscope.words import some

UNDECIDED = "undecided"
"""The type of a head whose type the measurement cannot tell."""


@dataclass(frozen=True)
class TypeChange:
    """A head had the type `before` at the step `since` and another one, `after`, at `step`.

    Between these two steps its type was undecided, or nothing was measured.
    """

    since: int
    step: int
    before: str
    after: str


@dataclass(frozen=True)
class ChangedHead:
    """One head with its type at the first and at the last step, and all changes in between.

    `before` or `after` is None if the head was not measured at that step.
    """

    module: str
    layer: int
    head: int
    before: str | None
    after: str | None
    changes: tuple[TypeChange, ...]

    @property
    def differs(self) -> bool:
        """Whether the last type is known to differ from the first; a head may also have changed back."""
        return self.before != self.after and not {self.before, self.after} & {None, UNDECIDED}


@dataclass(frozen=True)
class TypeCount:
    """The number of heads that were `before` at the first step and `after` at the last."""

    before: str
    after: str
    heads: int


@dataclass(frozen=True)
class HeadChanges:
    """What became of the heads between two steps of a stage.

    `changed` and `same` compare the last step with the first; `unknown` are the heads that are undecided
    at one of the two, `missing` those measured at only one of them. `heads` lists every head whose type
    changed at any time, also those that changed back.
    """

    stage: str
    first: int
    last: int
    changed: int
    same: int
    unknown: int
    missing: int
    counts: tuple[TypeCount, ...]
    heads: tuple[ChangedHead, ...]

    @property
    def sentence(self) -> str:
        """How many heads changed their type, and of how many this is unknown."""
        known = self.changed + self.same
        text = (
            f"{self.changed} of {known} heads changed type between step {self.first:,} and step {self.last:,}"
        )
        return "; ".join([text, *self.doubts])

    @property
    def doubts(self) -> list[str]:
        """Of how many heads it is not known whether they changed, and why."""
        parts = [f"of {self.unknown} it is unknown (undecided at one of the two)"] if self.unknown else []
        return parts + ([f"{self.missing} are in only one of the two"] if self.missing else [])


HeadId = tuple[str, int]
Snapshot = Mapping[HeadId, HeadRow]


def head_changes(before: Iterable[HeadRow], after: Iterable[HeadRow]) -> HeadChanges:
    """Compare the heads of two models, such as before and after fine-tuning; each has one step.

    Modules match by name; if a model has one prefix more (`bert.encoder…` and `encoder…`), without it.
    """
    left, right = _without_extra_prefix(_snapshot(before), _snapshot(after))
    if not left or not right or not left.keys() & right.keys():
        one, other = (some(dict.fromkeys(name for name, _ in side)) or "none" for side in (left, right))
        raise SeriesError(
            f"the two models have no attention head in common: one has {one}, the other {other}"
        )
    return _compared([left, right])


def head_changes_of_runs(
    a: Run, b: Run, stage: str | None = None, until: int | None = None
) -> HeadChanges | None:
    """Compare the heads of two runs, each at its last measured step; None if one has no heads."""
    before, after = (_last_heads(run, stage, until) for run in (a, b))
    return head_changes(before, after) if before and after else None


def _last_heads(run: Run, stage: str | None, until: int | None) -> list[HeadRow]:
    columns = run.table(HeadRow).columns.values()
    rows = [HeadRow(*values) for values in zip(*columns, strict=True)]
    kept = [row for row in rows if until is None or row.step <= until]
    stages = sorted({row.stage for row in kept})
    if stage is None and len(stages) > 1:
        raise UsageError(
            f"{run.path} has attention heads of several stages ({some(stages)}): choose one (--stage NAME)"
        )
    kept = [row for row in kept if stage in (None, row.stage)]
    last = max((row.step for row in kept), default=0)
    return [row for row in kept if row.step == last]


def changes_over_steps(rows: Iterable[HeadRow]) -> list[HeadChanges]:
    """The changes over the steps of each stage; a stage with one step has none and is left out."""
    found: dict[str, dict[int, list[HeadRow]]] = {}
    for row in rows:
        found.setdefault(row.stage, {}).setdefault(row.step, []).append(row)
    stages = ([_snapshot(steps[step]) for step in sorted(steps)] for steps in found.values())
    return [_compared(snapshots) for snapshots in stages if len(snapshots) > 1]


def _snapshot(rows: Iterable[HeadRow]) -> dict[HeadId, HeadRow]:
    return {(row.module, row.head): row for row in rows}


def _compared(snapshots: Sequence[Snapshot]) -> HeadChanges:
    first, last = snapshots[0], snapshots[-1]
    both = [(row.type, last[key].type) for key, row in first.items() if key in last]
    known = [pair for pair in both if UNDECIDED not in pair]
    start, end = next(iter(first.values())), next(iter(last.values()))
    return HeadChanges(
        stage=end.stage,
        first=start.step,
        last=end.step,
        changed=sum(a != b for a, b in known),
        same=sum(a == b for a, b in known),
        unknown=len(both) - len(known),
        missing=len(first.keys() ^ last.keys()),
        counts=tuple(TypeCount(a, b, n) for (a, b), n in sorted(Counter(both).items())),
        heads=tuple(_changed_heads(snapshots)),
    )


def _changed_heads(snapshots: Sequence[Snapshot]) -> Iterator[ChangedHead]:
    """Every head whose type changed at any time, by layer."""
    every = {key: row for snapshot in snapshots for key, row in snapshot.items()}
    for key, row in sorted(every.items(), key=lambda item: (item[1].layer, item[0])):
        history = [snapshot.get(key) for snapshot in snapshots]
        known = [found for found in history if found is not None and found.type != UNDECIDED]
        changes = tuple(
            TypeChange(a.step, b.step, a.type, b.type) for a, b in pairwise(known) if a.type != b.type
        )
        if changes:
            before, after = (found.type if found else None for found in (history[0], history[-1]))
            yield ChangedHead(row.module, row.layer, row.head, before, after, changes)


def clearest_heads(rows: Iterable[HeadRow], kind: str, most: int = 3) -> list[HeadRow]:
    """The heads of a type, the one farthest from the thresholds first; the order of every list of heads."""
    those = (row for row in rows if row.type == kind)
    return sorted(those, key=lambda row: (-row.margin, row.effective, row.layer, row.head))[:most]


# -- modules of two models ------------------------------------------------------------


def _without_extra_prefix(left: Snapshot, right: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Both models with the same names of modules, if one of them only has a prefix more."""
    if left.keys() & right.keys() or not left or not right:
        return left, right
    ours, theirs = (_common_prefix([name for name, _ in side]) for side in (left, right))
    if ours.endswith(f".{theirs}") or (ours and not theirs):
        return _shortened(left, len(ours) - len(theirs)), right
    if theirs.endswith(f".{ours}") or (theirs and not ours):
        return left, _shortened(right, len(theirs) - len(ours))
    return left, right


def _common_prefix(names: Sequence[str]) -> str:
    """The path that all modules share, up to and with its last dot."""
    levels = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return "".join(f"{parts[0]}." for parts in takewhile(lambda parts: len(set(parts)) == 1, levels))


def _shortened(side: Snapshot, cut: int) -> Snapshot:
    return {(name[cut:], head): replace(row, module=name[cut:]) for (name, head), row in side.items()}
