"""One stage of a series under scan: its checkpoints, its tensors, and what is still to be measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from functools import reduce

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import Entry
from normscope.run import NO_PREVIOUS, CheckpointRow, Run, TensorRow
from normscope.table import Value
from normscope.weights.inventory.inventory import Inventory, take_inventory
from normscope.weights.scan.plan import Chain, missing_chain
from normscope.weights.scan.plugin_measures import outdated_steps
from normscope.weights.scan.walk import Part, parts
from normscope.weights.sums.statistics import Sums, add
from normscope.weights.tensor_rows import add_tensors


class ScanStage:
    """The open checkpoints of one stage and the parameters they have in common."""

    def __init__(self, entries: list[Entry], checkpoints: list[Checkpoint], skip: Collection[str]) -> None:
        self.name = entries[0].stage
        self.entries = entries
        self.checkpoints = checkpoints
        self.steps = [entry.step for entry in entries]
        self.inventory: Inventory = take_inventory(checkpoints, [entry.label for entry in entries], skip)
        self.rows: list[TensorRow] = []

    def register(self, run: Run) -> None:
        """Write the checkpoints and tensors; what was measured of a changed checkpoint is forgotten."""
        now = [self._row(entry, c) for entry, c in zip(self.entries, self.checkpoints, strict=True)]
        before = {row.step: row for row in run.checkpoints() if row.stage == self.name}
        changed = [row.step for row in now if row.step in before and before[row.step].digest != row.digest]
        another_first = before and min(before) != self.steps[0]
        if another_first or self.steps[0] in changed:
            run.forget_sums(self.name)  # every ⟨θ₀, θ⟩ was computed with another θ₀
        for step in changed:
            run.forget_sums(self.name, step)
        run.forget_measures(self.name, outdated_steps(before, self.steps, changed))
        run.write(now)
        self.rows = add_tensors(run, self.inventory.tensors, self.inventory.tied_to)
        run.set_skipped(self.inventory.skipped.items())

    def _row(self, entry: Entry, checkpoint: Checkpoint) -> CheckpointRow:
        return CheckpointRow(
            entry.step,
            entry.label,
            entry.source,
            self.name,
            entry.tokens,
            checkpoint.format,
            checkpoint.nbytes,
            checkpoint.digest,
        )

    def tasks(self, run: Run) -> list[TensorTask]:
        """What is missing of each tensor, the largest first, so that workers finish together."""
        have: dict[int, set[tuple[int, int]]] = {}
        sql = "SELECT tensor, step, prev_step FROM weight WHERE stage = ? AND dot_init IS NOT NULL"
        for tensor, step, previous in run.query(sql, (self.name,)):
            have.setdefault(tensor, set()).add((step, previous))
        tasks = []
        for tensor, row in zip(self.inventory.tensors, self.rows, strict=True):
            chain = missing_chain(self.steps, have.get(row.id, ())) if row.tied_to is None else None
            if chain is not None:
                tasks.append(TensorTask(self, row, chain, deque(parts(tensor, chain, self.checkpoints))))
        return sorted(tasks, key=lambda task: -task.row.numel)


class TensorTask:
    """One tensor being measured: the parts still to be walked, and the sums of the others."""

    def __init__(self, stage: ScanStage, row: TensorRow, chain: Chain, todo: deque[Part]) -> None:
        self.stage, self.row, self.chain = stage, row, chain
        self.todo = todo
        self.nbytes = sum(part.nbytes for part in todo)
        self._unfinished = len(todo)
        self._found: dict[int, list[Sums]] = {}

    @property
    def sources(self) -> dict[int, str]:
        """The sources of the checkpoints that its chain reads, by index."""
        return {i: self.stage.entries[i].source for i in self.chain.reads}

    def finish(self, part: Part, found: list[Sums]) -> bool:
        """Keep the sums of a part; return whether it was the last one."""
        self._found[part.start] = found
        self._unfinished -= 1
        return not self._unfinished

    def tuples(self) -> Iterator[tuple[Value, ...]]:
        """The finished rows for `Run.write_sums`; parts are added in order, so a rerun gives equal bits."""
        ordered = [self._found[start] for start in sorted(self._found)]
        steps = self.stage.steps
        for i, several in zip(sorted(self.chain.rows), zip(*ordered, strict=True), strict=True):
            total = reduce(add, several)
            previous = steps[i - 1] if i else NO_PREVIOUS
            dot, delta = (total.dot, total.sumsq_delta) if i else (None, None)
            sums = (total.sumsq, dot, delta, total.dot_init, total.absmax, total.nonfinite)
            yield (self.stage.name, steps[i], previous, self.row.id, *sums)
