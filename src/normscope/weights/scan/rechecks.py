"""Checkpoints that are measured again although they seem known, and whether their sums are the recorded ones.

The digest of a large file is made of samples, so a change elsewhere in it is noticed by its stamp: the time
of modification. Such a checkpoint is measured again, and a note says whether it had changed. With `verify`
all are measured again, nothing recorded is replaced, and a difference is an error: a time can be set back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from normscope._version import __version__
from normscope.errors import ReplacedCheckpoint
from normscope.run import CheckpointRow, Run
from normscope.run_schema import SCANNED_ROWS, SUMS
from normscope.table import Value
from normscope.weights.sums.statistics import backend
from normscope.words import some

KERNELS = "kernels"
"""The key, in the metadata, of all kernels that computed sums of the run file."""
SAME = 1e-6
"""How far sums of equal values may differ, relatively, if two kernels computed them."""
_OWN = [SUMS.index(name) for name in ("sumsq", "absmax", "nonfinite")]
_DOT_INIT = SUMS.index("dot_init")


class Recheck:
    """What is compared in one stage: the steps in `written`, or all with `verify`; `differing` were found.

    `written` are those whose files were written since they were measured; `copied` are other files than then,
    with the same times.
    """

    def __init__(self, stage: str, rows: Sequence[CheckpointRow], verify: bool) -> None:
        self.stage, self.rows, self.verify = stage, rows, verify
        self.written: set[int] = set()
        self.copied: set[int] = set()
        self.differing: set[int] = set()
        self.exactly = True

    def compare_stamps(self, before: Mapping[int, CheckpointRow], changed: Collection[int]) -> None:
        """Find the files that were written or copied; those that `changed` anyway have other digests."""
        for row in self.rows:
            old = before[row.step].stamp if row.step in before else None
            if old and row.stamp and old != row.stamp and row.step not in changed:
                same_time = old.partition(".")[0] == row.stamp.partition(".")[0]
                (self.copied if same_time else self.written).add(row.step)

    def to_write(self, run: Run, rows: Sequence[tuple[Value, ...]]) -> Sequence[tuple[Value, ...]]:
        """Compare the rows of one tensor with the recorded ones; return those that are to be written."""
        if not (self.verify or self.written) or not rows:
            return rows
        condition = f"stage = ? AND tensor = ? AND {SCANNED_ROWS}"
        sql = f"SELECT step, prev_step, {', '.join(SUMS)} FROM weight WHERE {condition}"
        recorded = {tuple(row[:2]): row[2:] for row in run.query(sql, (self.stage, rows[0][3]))}
        for row in rows:
            if row[1:3] in recorded:
                self._compare(row[1:3], recorded[row[1:3]], row[4:])
        if not self.verify:
            return rows
        return [row for row in rows if row[1:3] not in recorded or recorded[row[1:3]][_DOT_INIT] is None]

    def _compare(self, pair: tuple[Value, ...], old: Sequence[Value], new: Sequence[Value]) -> None:
        """Note the step if the row differs; not if only its partners explain that."""
        partners = {self.rows[0].step, pair[1]} & self.differing
        if not self._equal([old[i] for i in _OWN], [new[i] for i in _OWN]) or (
            not partners and self.exactly and not self._equal(old, new)
        ):
            self.differing.add(pair[0])  # type: ignore[arg-type]

    def _equal(self, old: Sequence[Value], new: Sequence[Value]) -> bool:
        """Whether two rows of sums agree; what was marked as missing is not compared."""
        pairs: list[tuple[Any, Any]] = [
            (a, b) for a, b in zip(old, new, strict=True) if a is not None and b is not None
        ]
        return all(a == b if self.exactly else math.isclose(a, b, rel_tol=SAME) for a, b in pairs)

    def notes(self) -> list[str]:
        """What is to be said about files that were written or copied since they were measured."""
        changed = self.differing & self.written or (self.written if self.differing else set())
        found = [
            (changed, "changed since the last scan; measured again, and the old sums are replaced"),
            (
                self.written - changed,
                "written since the last scan; measured again, and the sums are the same",
            ),
            (
                self.copied,
                "not the same file as in the last scan, but with the same size, time and samples; taken for "
                "a copy, --verify compares everything",
            ),
        ]
        return [] if self.verify else [f"{self._names(steps)}: {what}" for steps, what in found if steps]

    def _names(self, steps: Collection[int]) -> str:
        return some([row.source for row in self.rows if row.step in steps])


def note_kernel(run: Run, rechecks: Sequence[Recheck]) -> None:
    """Record which kernel computes the sums; those of one are compared exactly. Call in `transaction()`."""
    ours, recorded = f"{backend()}, {__version__}", run.meta.get(KERNELS)
    if recorded is None and run.query("SELECT 1 FROM weight LIMIT 1"):
        recorded = ["unknown"]  # a file of an earlier release
    known = sorted({*(recorded or ()), ours})
    run.set_meta(KERNELS, known)
    for each in rechecks:
        each.exactly = known == [ours]


def conclude(run: Run, rechecks: Sequence[Recheck]) -> None:
    """Write the notes, and that what was verified is known. Call inside `transaction()`."""
    run.set_meta("notes", [*run.meta.get("notes", ()), *(note for each in rechecks for note in each.notes())])
    for each in rechecks:
        if each.verify:
            run.write(row for row in each.rows if row.step not in each.differing)


def refuse_differing(run: Run, rechecks: Sequence[Recheck]) -> None:
    """Raise ReplacedCheckpoint if `verify` found checkpoints with other values than recorded."""
    found = [
        row.source for each in rechecks if each.verify for row in each.rows if row.step in each.differing
    ]
    if found:
        raise ReplacedCheckpoint(
            f"verify: {len(found)} checkpoint{'s differ' if len(found) > 1 else ' differs'} from what "
            f"{run.path} recorded: {some(found, 3)}. Nothing recorded was replaced. Restore the files or, if "
            "they are right, touch them and scan without --verify."
        )
