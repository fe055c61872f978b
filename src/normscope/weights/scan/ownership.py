"""A run file belongs to one series: whether a scan may write to it.

A series is recognised by the contents of its checkpoints, so it may be moved, renamed or rotated. Only where
no checkpoint is known from before does the place decide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from normscope.checkpoints.series.series import Entry
from normscope.errors import AnotherSeries
from normscope.rows import step_key
from normscope.run import Run
from normscope.weights.scan.live_rows import refuse_other_live_rows
from normscope.weights.scan.recorded_checkpoints import Ownership
from normscope.weights.scan.scan_stage import ScanStage
from normscope.weights.series_identity import DigestComparison, outermost, place, set_places
from normscope.words import natural_key, some


def claim(run: Run, ownership: Ownership, stages: Sequence[ScanStage]) -> list[str]:
    """Refuse a series that is not the run file's own; return what is to be said about its place.

    Call inside the transaction that registers the stages, before they are registered.
    """
    verdict = _Verdict(run, ownership, stages)
    recorded, given = ownership.recorded, ownership.given
    if not recorded.known:
        set_places(run, outermost(given))
        return verdict.check_live_rows()
    same_place = verdict.check()
    if ownership.add or same_place:
        set_places(run, outermost((*recorded.places, *given)))
        return []
    set_places(run, outermost(given))
    return [f"the checkpoints were found in another place than before: {ownership.name}, not {recorded.name}"]


class _Verdict:
    """The comparison of a series with what the run file knows, and the refusals that follow from it."""

    def __init__(self, run: Run, ownership: Ownership, stages: Sequence[ScanStage]) -> None:
        self.run, self.own, self.stages = run, ownership, stages
        digests = {
            step_key(stage.name, step): digest for stage in stages for step, digest in stage.digests.items()
        }
        self.digests = {key: digest for key, digest in digests.items() if key in ownership.asked}
        self.others = {key: digest for key, digest in digests.items() if key not in ownership.asked}
        here = digests.keys() | {step_key(stage.name, step) for stage in stages for step in stage.other_steps}
        found = ownership.recorded.compare(self.digests)
        self.found: DigestComparison = replace(found, missing=found.missing - here)

    def check(self) -> bool:
        """Refuse another series; return whether this one is in the recorded place."""
        self._refuse_other_steps()
        self._refuse_changed_others()
        if self.own.add:
            self._check_added()
            return True
        if self.own.related:
            self._check_same_place()
            return True
        if not self._moved():
            raise self._another()
        return False

    def check_live_rows(self) -> list[str]:
        """Without checkpoints to compare with, what a monitor recorded must agree; say if it cannot."""
        notes = [note for stage in self.stages for note in refuse_other_live_rows(self.run, stage)]
        return list(dict.fromkeys(notes))

    def _check_added(self) -> None:
        if self.found.changed:
            raise AnotherSeries(
                f"--add: {self.own.name} has {self._steps(self.found.changed)}, which {self.run.path} "
                f"already has from {self.own.recorded.name} with other contents: give the steps with --steps "
                "if they count on, or choose another run file with --run FILE"
            )
        measured = {step_key(stage.name, step) for stage in self.stages for step in stage.steps}
        if not measured & self.own.asked:
            left_out = [f"{each.label} {each.reason}" for stage in self.stages for each in stage.left_out]
            raise AnotherSeries(
                f"--add: {self.own.name} has other tensors than {self.own.recorded.name}, which "
                f"{self.run.path} was made from ({some(left_out, 1)}): write it to a file of its own with "
                "--run FILE"
            )
        self._refuse_other_tensors("--add: ")

    def _check_same_place(self) -> None:
        found = self.found
        common = len(found.equal) + len(found.changed)
        alone = len(self.own.recorded.digests) == 1
        replaced = len(found.changed) > 1 and 2 * len(found.changed) > common
        if found.changed and (replaced or (not found.equal and not alone)):
            raise self._files_changed(f"{len(found.changed)} of {common} checkpoints have other contents")
        abandoned = self._later_than(found.missing, found.new | found.changed)
        if abandoned:
            are = "is" if len(abandoned) == 1 else "are"
            raise self._files_changed(f"{self._steps(abandoned)} {are} gone, and earlier ones are new")
        if not common:
            self._check_without_evidence()

    def _check_without_evidence(self) -> None:
        """No checkpoint is known: all were rotated away, or nothing was scanned yet."""
        if not self.own.recorded.digests:
            self.check_live_rows()
            return
        if not set(self.own.given) <= set(self.own.recorded.places):
            raise self._another()
        self._refuse_other_tensors("")

    def _moved(self) -> bool:
        """Whether this is the recorded series in a new place, perhaps rotated and continued."""
        found = self.found
        if not self.own.recorded.digests:
            return self._beside_its_run_file()
        if not found.equal or found.changed:
            return False
        if not found.missing:
            return True
        if self._was_there():  # a part of it elsewhere, perhaps continued: --add
            return False
        last = max(self.own.recorded.digests, key=_order)
        left_over = not found.new and len(found.equal) > 1
        return left_over or (last in found.equal and not self._later_than(found.missing, found.new))

    def _beside_its_run_file(self) -> bool:
        """Whether a lab run's folder was moved as a whole: OUT/run.db and OUT/checkpoints."""
        home = place(str(self.run.path.parent))
        return not self._was_there() and all(given == f"{home}/checkpoints" for given in self.own.given)

    def _was_there(self) -> bool:
        """Whether a recorded place still exists, so that its series was not moved from there."""
        return any("://" in there or Path(there).exists() for there in self.own.recorded.places)

    # -- refusals ------------------------------------------------------------------

    def _another(self) -> AnotherSeries:
        return AnotherSeries(
            f"{self.run.path} is the run file of {self.own.recorded.name}, and {self.own.name} "
            f"{_is(self.own.given)} another series: write it to a file of its own with --run FILE, or give "
            "--add if it continues the same training"
        )

    def _files_changed(self, what: str) -> AnotherSeries:
        return AnotherSeries(
            f"the checkpoints in {self.own.name} are not those that {self.run.path} was made from: {what}. "
            f"If another training wrote them, delete {self.run.path} or choose another file with --run FILE"
        )

    def _refuse_other_steps(self) -> None:
        """The same checkpoint under another step: the steps were given or read differently before."""
        labels = {(label, self.own.recorded.digests[key]): key for key, label in self._labels()}
        for stage in self.stages:
            for entry in stage.entries:
                key = _key(entry)
                before = labels.get((entry.label, self.digests.get(key)), key)
                if key in self.own.asked and before != key and before in self.found.missing:
                    raise AnotherSeries(
                        f"{entry.source} is step {entry.step} now and was step {before} when it was scanned "
                        f"into {self.run.path}: give the same --steps, delete {self.run.path}, or choose "
                        "another file with --run FILE"
                    )

    def _refuse_changed_others(self) -> None:
        """What was not asked for is read too, if it is recorded; another training may be there now."""
        found = self.own.recorded.compare(self.others)
        if len(found.changed) > len(found.equal):
            sources = [e.source for s in self.stages for e in s.entries if _key(e) in found.changed]
            raise AnotherSeries(
                f"{self.run.path} also has {self._steps(found.changed)} from {some(sources, 1)}, and these "
                f"have other contents now. If another training wrote them, delete {self.run.path} or choose "
                "another file with --run FILE"
            )

    def _labels(self) -> list[tuple[str, str]]:
        return [(k, label) for k, label in self.own.recorded.labels.items() if self.own.recorded.digests[k]]

    def _refuse_other_tensors(self, prefix: str) -> None:
        rows = self.run.tensors()
        tensors = [
            (tensor, stage.inventory.tied_to) for stage in self.stages for tensor in stage.inventory.tensors
        ]
        known, now = {row.name: row.shape for row in rows}, {t.name: t.shape for t, _ in tensors}
        counted = {row.name for row in rows if row.tied_to is None} | {
            t.name for t, tied in tensors if t.name not in tied
        }
        differing = [name for name in known | now if name in counted and known.get(name) != now.get(name)]
        if differing:
            raise AnotherSeries(
                f"{prefix}{self.own.name} has other tensors than {self.own.recorded.name}, which "
                f"{self.run.path} was made from ({some(differing)}): write it to a file of its own with "
                "--run FILE"
            )

    def _later_than(self, keys: frozenset[str], others: frozenset[str]) -> list[str]:
        """Those of the keys that come after one of the others, in the same stage."""
        first: dict[str, int] = {}
        for stage, step in map(_parts, others):
            first[stage] = min(step, first.get(stage, step))
        found = [key for key in keys if _parts(key)[1] > first.get(_parts(key)[0], _parts(key)[1])]
        return sorted(found, key=_order)

    @staticmethod
    def _steps(keys: Collection[str]) -> str:
        ordered = sorted(keys, key=_order)
        return f"step{'s' if len(keys) > 1 else ''} {some(ordered)}"


def _is(places: Sequence[str]) -> str:
    return "is" if len(places) == 1 else "are"


def _key(entry: Entry) -> str:
    return step_key(entry.stage, entry.step)


def _parts(key: str) -> tuple[str, int]:
    stage, _, step = key.rpartition("/")
    return stage, int(step)


def _order(key: str) -> Any:
    stage, step = _parts(key)
    return natural_key(stage), step
