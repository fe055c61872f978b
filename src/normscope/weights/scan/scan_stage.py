"""One stage of a series under scan: its checkpoints, its tensors, and what is still to be measured."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from glob import escape
from types import MappingProxyType

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.round_trips import for_each
from normscope.checkpoints.series.series import Entry
from normscope.errors import CheckpointError, CorruptCheckpoint, UnknownFormat, UnsafeCheckpoint
from normscope.remarks import LeftOut
from normscope.run import NO_PREVIOUS, CheckpointRow, Run, TensorRow
from normscope.run_schema import SCANNED_ROWS
from normscope.table import Value
from normscope.weights.inventory.inventory import Inventory, TensorChoice, take_inventory
from normscope.weights.inventory.renamed_checkpoint import stored_name
from normscope.weights.networks import networks
from normscope.weights.reading.plan import Chain, missing_chain
from normscope.weights.reading.walk import Part, parts
from normscope.weights.scan.checkpoint_place import CheckpointPlace
from normscope.weights.scan.plugin_measures import outdated_steps
from normscope.weights.scan.rechecks import Recheck
from normscope.weights.series_identity import absolute, same_contents
from normscope.weights.soundness.kept_pairs import forget_pairs
from normscope.weights.stale_rows import (
    delete_former_pairs,
    delete_left_out,
    forget_abandoned,
    forget_changed,
    forget_measures,
    forget_sums,
)
from normscope.weights.sums.statistics import Sums, add
from normscope.weights.tensor_rows import add_tensors

DAMAGED = (CorruptCheckpoint, UnknownFormat, UnsafeCheckpoint)
"""What is wrong with the file itself; other errors (network, permissions) stop the scan."""


def open_stage(entries: Sequence[Entry], choice: TensorChoice, stack: ExitStack) -> ScanStage:
    """Open the checkpoints of a stage; the stack closes them. A few that are damaged are left out."""
    opened: list[tuple[Entry, Checkpoint]] = []
    damaged: dict[Entry, CheckpointError] = {}
    found_all = for_each(entries, _open_or_error, [entry.source for entry in entries])
    for entry, found in zip(entries, found_all, strict=True):
        if isinstance(found, CheckpointError):
            damaged[entry] = found
        else:
            opened.append((entry, found))
            stack.callback(found.close)
    if 2 * len(damaged) >= len(entries):
        raise _too_many(damaged, len(entries))
    kept, checkpoints = zip(*opened, strict=True)
    return ScanStage(kept, checkpoints, choice, {entry: str(error) for entry, error in damaged.items()})


def _open_or_error(entry: Entry) -> Checkpoint | CheckpointError:
    try:
        return entry.open()
    except DAMAGED as error:
        return error


def refuse_other_shapes(stages: Sequence[ScanStage]) -> None:
    """Refuse tensors that change their shape from one stage to another: a run file has one shape of each."""
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for stage in stages:
        for tensor in stage.inventory.tensors:
            name, shape = shapes.setdefault(tensor.name, (stage.name, tensor.shape))
            if shape != tensor.shape:
                raise CheckpointError(
                    f"{tensor.name} has the shape {list(shape)} in {name} and {list(tensor.shape)} in "
                    f"{stage.name}: scan each stage into a run file of its own, with a glob and --run, or "
                    f"leave it out with --skip '{escape(tensor.name)}'"
                )


def _too_many(damaged: Mapping[Entry, CheckpointError], total: int) -> CheckpointError:
    first = next(iter(damaged.values()))
    return first if len(damaged) == 1 else type(first)(f"{len(damaged)} of {total} checkpoints: {first}")


class ScanStage:
    """The open checkpoints of one stage that belong together, and the parameters they have in common.

    `checkpoints` and what `entries` open have the same names, which may differ from the stored ones.
    `left_out` are the others, with those of `unreadable`, the entries that could not be opened. `digests`
    are those of all that could be opened, by step.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        checkpoints: Sequence[Checkpoint],
        choice: TensorChoice,
        unreadable: Mapping[Entry, str] = MappingProxyType({}),
    ) -> None:
        self.name = entries[0].stage
        self.names = {n: None for c in checkpoints for n in (*c.tensors, *c.skipped)}
        labels = _labels((*entries, *unreadable))
        self.inventory = inventory = take_inventory(checkpoints, [labels[entry] for entry in entries], choice)
        self.entries = [_named(inventory, i, entries[i]) for i in inventory.members]
        self.checkpoints = [inventory.named(i, checkpoints[i]) for i in inventory.members]
        self.steps = [entry.step for entry in self.entries]
        unopened = [LeftOut(labels[entry], reason) for entry, reason in unreadable.items()]
        self.left_out = (*inventory.left_out, *unopened)
        self.digests = {entry.step: c.digest for entry, c in zip(entries, checkpoints, strict=True)}
        self.sources = {entry.step: entry.source for entry in (*entries, *unreadable)}
        self.other_steps = self.sources.keys() - set(self.steps)
        tied = inventory.tied_to
        self.counted = frozenset(t.name for t in inventory.tensors if t.name not in tied)
        self.compared = self.counted | frozenset(inventory.differing)
        self.rows: list[TensorRow] = []
        self._places: dict[int, CheckpointPlace] = {}

    def register(self, run: Run, verify: bool = False) -> list[str]:
        """Write the checkpoints and tensors; what was measured of a changed checkpoint is forgotten.

        What was measured of a checkpoint or a tensor that is now left out is deleted. With `verify`, what is
        known of the others stays, to be compared. Return what is to be said.
        """
        delete_left_out(run, self.name, self.other_steps, self.counted)
        notes = forget_abandoned(run, self.name, self.sources)
        now = [self._row(entry, c) for entry, c in zip(self.entries, self.checkpoints, strict=True)]
        before = {row.step: row for row in run.checkpoints() if row.stage == self.name}
        known = [row for row in now if row.step in before]
        changed = [row.step for row in known if not same_contents(before[row.step].digest, row.digest)]
        self.recheck = Recheck(self.name, now, verify)
        self.recheck.compare_stamps(before, changed)
        self._forget(run, before, [] if verify else changed)
        run.write([row for row in now if not verify or row.step not in before])
        delete_former_pairs(run, self.name, self.steps)
        self.rows = add_tensors(run, self.inventory.tensors, self.inventory.tied_to, self._networks())
        return notes

    def _forget(self, run: Run, before: Mapping[int, CheckpointRow], changed: Sequence[int]) -> None:
        """Forget what was measured of changed checkpoints; mark what is to be measured again and compared."""
        written = set() if self.recheck.verify else self.recheck.written
        if self._compared_with(run) != [self.steps[0]] or self.steps[0] in {*changed, *written}:
            forget_sums(run, self.name)  # every ⟨θ₀, θ⟩ was computed with another θ₀
        for step in written:
            forget_sums(run, self.name, step)
            forget_pairs(run, self.name)
        for step in changed:
            forget_changed(run, self.name, step)
        forget_measures(run, self.name, outdated_steps(before, self.steps, [*changed, *written]))

    def check_not_rewritten(self) -> None:
        """Raise CheckpointError if a file was written while it was measured; the next scan will read it."""
        for checkpoint in self.checkpoints:
            checkpoint.check_not_rewritten()

    def _networks(self) -> Sequence[str]:
        """First words of names that are networks of their own: files and names say so, or values."""
        declared = list(dict.fromkeys(key for checkpoint in self.checkpoints for key in checkpoint.networks))
        told_apart = networks((tensor.name for tensor in self.inventory.tensors), declared)
        return declared if told_apart else self.inventory.twins

    def _compared_with(self, run: Run) -> list[int]:
        """The steps of θ₀ in the ⟨θ₀, θ⟩ that are recorded: one, or none yet."""
        measured = f"stage = ? AND prev_step = ? AND dot_init IS NOT NULL AND {SCANNED_ROWS}"
        first = f"SELECT DISTINCT step FROM weight WHERE {measured}"
        return [step for (step,) in run.query(first, (self.name, NO_PREVIOUS))]

    def _row(self, entry: Entry, checkpoint: Checkpoint) -> CheckpointRow:
        return CheckpointRow(
            entry.step,
            entry.label,
            absolute(entry.source),
            self.name,
            entry.tokens,
            checkpoint.format,
            checkpoint.nbytes,
            checkpoint.digest,
            checkpoint.stamp,
        )

    def place(self, i: int) -> CheckpointPlace:
        """Where other processes find a checkpoint, by index."""
        if i not in self._places:  # some digests take a while
            self._places[i] = CheckpointPlace(self.entries[i].address, self.checkpoints[i].digest)
        return self._places[i]

    def other_names(self, part: Part) -> dict[int, str]:
        """The stored names of a tensor, by index, in the checkpoints that call it otherwise."""
        name = part.tensor.name
        stored = {i: stored_name(self.checkpoints[i], name) for i in part.chain.reads}
        return {i: other for i, other in stored.items() if other != name}

    def tasks(self, run: Run) -> list[TensorTask]:
        """What is missing of each tensor, the largest first, so that workers finish together."""
        have: dict[int, set[tuple[int, int]]] = {}
        measured = f"stage = ? AND dot_init IS NOT NULL AND {SCANNED_ROWS}"
        sql = f"SELECT tensor, step, prev_step FROM weight WHERE {measured}"
        for tensor, step, previous in () if self.recheck.verify else run.query(sql, (self.name,)):
            have.setdefault(tensor, set()).add((step, previous))
        tasks = []
        for tensor, row in zip(self.inventory.tensors, self.rows, strict=True):
            chain = missing_chain(self.steps, have.get(row.id, ())) if row.tied_to is None else None
            if chain is not None:
                tasks.append(TensorTask(self, row, chain, deque(parts(tensor, chain, self.checkpoints))))
        return sorted(tasks, key=lambda task: -task.row.numel)


def _labels(entries: Collection[Entry]) -> dict[Entry, str]:
    """What messages call each entry: its label with its stage, or its source if others have its label."""
    counts = Counter(entry.label for entry in entries)
    return {e: e.source if counts[e.label] > 1 else _with_stage(e.label, e.stage) for e in entries}


def _with_stage(label: str, stage: str) -> str:
    return label if stage in label else f"{stage}/{label}"


def _named(inventory: Inventory, i: int, entry: Entry) -> Entry:
    """The entry, opening its checkpoint under the names of the inventory."""
    return replace(entry, opener=lambda: inventory.named(i, entry.open()))


class TensorTask:
    """One tensor being measured: the parts still to be walked, and the sums of the others."""

    def __init__(self, stage: ScanStage, row: TensorRow, chain: Chain, todo: deque[Part]) -> None:
        self.stage, self.row, self.chain = stage, row, chain
        self.todo = todo
        self.nbytes = sum(part.nbytes for part in todo)
        self._unfinished = len(todo)
        self._found: dict[int, list[Sums]] = {}

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
