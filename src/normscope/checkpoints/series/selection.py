"""Which of the checkpoints that were found form the series, and what is said about the others.

Numbered checkpoints of one form are the series. A final or unnumbered one joins them if it stores a later
step; copies, averages and the like are left out. Nothing is left out without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from normscope.checkpoints.series.copies import same_weights, share_a_tensor
from normscope.checkpoints.series.doubtful_names import doubtful, refuse_doubtful, settle, steps_to_give
from normscope.checkpoints.series.families import Named, one_family
from normscope.checkpoints.series.file_groups import FoundCheckpoint
from normscope.checkpoints.series.name_pattern import NamePattern, suggested_pattern
from normscope.checkpoints.series.names import parse_label
from normscope.checkpoints.series.parts import refuse_parts
from normscope.errors import CheckpointError
from normscope.remarks import LeftOut
from normscope.words import natural_key, some

_REASONS = {
    "best": "the best checkpoint so far, by its name, and not the next one of the series",
    "init": "the weights before training, by its name",
    "ema": "averaged weights (EMA), by its name",
    "average": "averaged weights, by its name",
    "backup": "a backup or temporary copy, by its name",
    "state": "the state of an optimizer or of the training, by its name",
    "part": "a part of a checkpoint that ranks share, by its name",
    "several": "its numbers may be a step or not",
}
_INCLUDE = "; to include it, give the steps of all checkpoints with --steps"


@dataclass(frozen=True)
class ChosenSeries:
    """The checkpoints of the series, unordered, with what their names say; the others; and notes."""

    chosen: tuple[Named, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()


def select(
    found: Sequence[FoundCheckpoint], default_step: int | None = None, growing: bool = False
) -> ChosenSeries:
    """Choose the checkpoints of the series by their names.

    `default_step` is the step of a single checkpoint that has none. A series that is `growing` leaves its
    latest, unnumbered checkpoint out, which will be overwritten.
    """
    if len(found) == 1:
        refuse_parts([found[0].label], _folder_of(found[0]))
        return _finished([_with_step(found[0], found, default_step)], [])
    refuse_parts([each.label for each in found], _folder_of(found[0]) if found else "")
    return _Chooser(found, growing).select()


def select_matching(found: Sequence[FoundCheckpoint], pattern: str) -> ChosenSeries:
    """Choose the checkpoints whose names match the user's pattern."""
    reader = NamePattern(pattern)
    read = [(each, reader.read(each)) for each in found]
    named = [Named(each, label) for each, label in read if label is not None]
    if not named:
        raise reader.no_match(found)
    refuse_parts([each.found.label for each in named], _folder_of(named[0].found))
    others = [
        LeftOut(each.label, "its name does not match --pattern") for each, label in read if label is None
    ]
    return _finished(*_without_copies(named, others))


def stored_step(found: FoundCheckpoint) -> int | None:
    """The step stored beside or inside a checkpoint."""
    step = found.stored_step()
    if step is None:
        with closing(found.open()) as checkpoint:
            step = checkpoint.step
    return step


class _Chooser:
    """Sorts the checkpoints into the series and the rest."""

    def __init__(self, found: Sequence[FoundCheckpoint], growing: bool) -> None:
        self.named = settle([Named(each, parse_label(each.label)) for each in found])
        self.growing = growing
        self.left_out: list[LeftOut] = []

    def select(self) -> ChosenSeries:
        numbered = self._numbered()
        if not numbered:
            return self._unnumbered()
        refuse_doubtful(numbered, self.named)
        kept, odd = one_family(numbered)
        kept, self.left_out = _without_copies(kept, [*self.left_out, *odd])
        others = _without(self.named, numbered)
        last = [each for each in others if each.label.kind in ("final", "plain")]
        kept += self._later(kept, last)
        rest = _without(others, last)
        self.left_out += [LeftOut(each.found.label, _reason(each)) for each in rest]
        return _finished(kept, self.left_out)

    def _numbered(self) -> list[Named]:
        """The numbered checkpoints; if there are none, those of a single other kind that all have numbers."""
        plain = [each for each in self.named if each.label.kind == "numbered"]
        rest = [each for each in self.named if each.label.kind not in ("state", "backup")]
        kinds = {each.label.kind for each in rest}
        same = len(kinds) == 1 and all(each.label.number is not None for each in rest)
        return plain or (rest if same and kinds <= {"best", "ema", "average", "final"} else [])

    def _unnumbered(self) -> ChosenSeries:
        """Checkpoints without numbers: the steps that they store."""
        several = [each for each in self.named if each.label.kind == "several"]
        if len(several) > 1:
            raise CheckpointError(doubtful(several))
        base = [each for each in self.named if each.label.kind in ("final", "plain", "several", "part")]
        candidates = base or [each for each in self.named if each.label.kind != "state"] or self.named
        found = [each.found for each in self.named]
        kept = [_with_step(each.found, found) for each in candidates]
        _refuse_several_runs(kept)
        rest = _without(self.named, candidates)
        self.left_out += [LeftOut(each.found.label, _reason(each)) for each in rest]
        series = _finished(*_without_copies(kept, self.left_out))
        return replace(series, notes=(*series.notes, *_stored_note(series.chosen)))

    # -- final and unnumbered ones beside numbered ones --------------------------------

    def _later(self, kept: Sequence[Named], last: Sequence[Named]) -> list[Named]:
        joined: list[Named] = []
        for each in last:
            outcome = self._place_last([*kept, *joined], each)
            if isinstance(outcome, Named):
                joined.append(outcome)
            else:
                self.left_out.append(LeftOut(each.found.label, outcome))
        return joined

    def _place_last(self, kept: Sequence[Named], each: Named) -> Named | str:
        """The checkpoint with its step, or the reason why it is left out."""
        if self.growing:
            return "the latest checkpoint of a run that is still training, which will be overwritten"
        try:
            if twin := _twin(each.found, kept):
                return f"the same weights as {twin.found.label}"
            step = each.label.number if each.label.number is not None else stored_step(each.found)
        except CheckpointError as error:
            return f"cannot be read: {error}"
        return self._at_step(kept, each, step)

    def _at_step(self, kept: Sequence[Named], each: Named, step: int | None) -> Named | str:
        stage = each.label.stage
        same_stage = [other for other in kept if other.label.stage == stage] or list(kept)
        newest = max(same_stage, key=lambda other: other.number)
        if step is None:
            return f"it has no step, in its name or inside, and is no copy of a numbered one{_INCLUDE}"
        if not _counts_steps(newest, each):
            return f"its step {step} and the numbers in the other names count different things{_INCLUDE}"
        if step <= newest.number:
            return f"its step {step} is not after {newest.found.label}, and its weights are no copy{_INCLUDE}"
        label = replace(each.label, step=step, stage=newest.label.stage, unit=newest.label.unit)
        return Named(each.found, label)


def _without(named: Sequence[Named], some: Sequence[Named]) -> list[Named]:
    """Those that are not among some of them, which are the same objects."""
    gone = set(map(id, some))
    return [each for each in named if id(each) not in gone]


def _counts_steps(newest: Named, each: Named) -> bool:
    """Whether the step of a last checkpoint is in the unit of the numbers in the names."""
    if each.label.number is not None:
        return each.label.unit == newest.label.unit
    return newest.label.unit == "step" or (
        newest.label.unit == "number" and stored_step(newest.found) == newest.number
    )


def _twin(found: FoundCheckpoint, kept: Sequence[Named]) -> Named | None:
    newest_first = sorted(kept, key=lambda each: -each.number)
    return next((each for each in newest_first if same_weights(found, each.found)), None)


def _with_step(
    found: FoundCheckpoint, beside: Sequence[FoundCheckpoint], default: int | None = None
) -> Named:
    """A checkpoint, one of those beside it, whose step is in its name, stored inside, or else the default."""
    label = parse_label(found.label)
    if label.number is None or (label.unit == "number" and label.skeleton != "#"):
        stored = stored_step(found)
        if stored is not None or label.number is None:
            label = replace(label, step=default if stored is None else stored, unit="step")
    if label.number is None:
        pattern = suggested_pattern(found.label) if label.kind == "several" else ""
        hint = f", or --pattern '{pattern}'" if pattern else ""
        raise CheckpointError(
            f"{found.source} has no step, neither in its name nor inside. {steps_to_give(beside, hint)}"
        )
    return Named(found, label)


def _without_copies(named: Sequence[Named], left_out: Sequence[LeftOut]) -> tuple[list[Named], list[LeftOut]]:
    """One checkpoint per step: a copy in another file is left out, another one refused."""
    chosen: dict[tuple[str, int], Named] = {}
    others = list(left_out)
    for each in sorted(named, key=_preference):
        other = chosen.setdefault((each.label.stage, each.number), each)
        if other is each:
            continue
        if not same_weights(other.found, each.found):
            raise CheckpointError(
                f"Step {each.number} appears twice: {other.found.source} and {each.found.source}"
                f"{_way_out(other.found, each.found)}"
            )
        others.append(LeftOut(_file(each.found), f"the same weights as {_file(other.found)}"))
    return list(chosen.values()), others


def _way_out(one: FoundCheckpoint, other: FoundCheckpoint) -> str:
    if share_a_tensor(one, other):
        return ". Leave one out, or give the steps in order with --steps."
    return (
        ", which have no tensor in common. If they are parts of one checkpoint, join them in one file first; "
        "if they are two networks, choose one with a glob or with --pattern."
    )


def _preference(each: Named) -> tuple[bool, tuple[object, ...]]:
    return "safetensors" not in each.found.source, natural_key(each.found.source)


def _finished(chosen: Iterable[Named], left_out: Iterable[LeftOut]) -> ChosenSeries:
    kept = tuple(chosen)
    beside = [each for named in kept for each in named.found.beside]
    return ChosenSeries(kept, (*left_out, *beside), _notes(kept))


def _notes(kept: Sequence[Named]) -> tuple[str, ...]:
    notes = []
    units = {each.label.unit for each in kept if each.label.number is not None}
    if counted := sorted(units - {"", "step", "number"}):
        notes.append(f"steps are {counted[0]}s, read from the names")
    if "number" in units and any(each.label.skeleton != "#" for each in kept):
        notes.append(
            f"no word in the names says what their numbers count; they are taken as steps{_but(kept)}"
        )
    kinds = {each.label.kind for each in kept}
    if len(kinds) == 1 and (kind := kinds.pop()) in ("best", "ema", "average"):
        notes.append(f"all checkpoints are of the kind '{kind}', by their names")
    return tuple(notes)


def _but(kept: Sequence[Named]) -> str:
    """What the last checkpoint stores, if it is not the number in its name."""
    last = max(kept, key=lambda each: each.number)
    try:
        step = last.number if len(kept) == 1 else stored_step(last.found)
    except CheckpointError:
        return ""
    other = step is not None and step != last.number
    return f", although {last.found.label} stores the step {step}" if other else ""


def _stored_note(chosen: Sequence[Named]) -> tuple[str, ...]:
    """A word on steps that are not in the names."""
    if len(chosen) < 2:
        return ()
    steps = some([f"{each.found.label} ({each.number})" for each in sorted(chosen, key=lambda e: e.number)])
    return (f"the names have no steps; they are read from inside: {steps}",)


def _refuse_several_runs(named: Sequence[Named]) -> None:
    """Folders whose names tell runs apart contain the last model of each run, and are no series."""
    folders = {_folder_of(each.found): each for each in named}
    if len(folders) < 2 or len({each.label.skeleton for each in folders.values()}) < 2:
        return
    steps = some([f"{each.found.label} (step {each.number})" for each in named])
    raise CheckpointError(
        f"The names have no steps, and the folders may be of different runs: {steps}. "
        "Give one of them, or, if they are one training, the steps in order with --steps."
    )


def _reason(each: Named) -> str:
    kind = each.label.kind
    pattern = suggested_pattern(each.found.label) if kind == "several" else ""
    hint = f"; --pattern '{pattern}' reads it" if pattern else _INCLUDE
    return _REASONS.get(kind, kind) + ("" if kind == "state" else hint)


def _file(found: FoundCheckpoint) -> str:
    return found.source.rstrip("/").rsplit("/", 1)[-1] if len(found.files) <= 1 else found.label


def _folder_of(found: FoundCheckpoint) -> str:
    return found.folder.name.rstrip("/")
