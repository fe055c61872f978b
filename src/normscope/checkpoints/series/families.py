"""Which numbered checkpoints are one series: names of one form, counted in one unit, in one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from itertools import pairwise, takewhile

from normscope.checkpoints.series.file_groups import FoundCheckpoint
from normscope.checkpoints.series.name_pattern import suggested_pattern
from normscope.checkpoints.series.names import Label, strip_suffix
from normscope.errors import CheckpointError
from normscope.remarks import LeftOut
from normscope.words import joined, natural_key, some

_FEWEST = 3
MOST_ODD = 0.25  # part of the checkpoints whose names may follow another form and are then left out


@dataclass(frozen=True)
class Named:
    """A checkpoint and what its name says."""

    found: FoundCheckpoint
    label: Label

    @property
    def number(self) -> int:
        """The step, or the epoch."""
        assert self.label.number is not None
        return self.label.number


def one_family(numbered: Sequence[Named]) -> tuple[list[Named], list[LeftOut]]:
    """The checkpoints of one series and those whose names do not fit; a refusal if there are two series."""
    kept: list[Named] = []
    left_out: list[LeftOut] = []
    for stage in dict.fromkeys(each.label.stage for each in numbered):
        of_stage, odd = _one_form([each for each in numbered if each.label.stage == stage])
        kept += of_stage
        left_out += odd
    _refuse_mixed_units(kept)
    _refuse_two_places(kept)
    _refuse_restarts(kept)
    return kept, left_out


def _one_form(numbered: Sequence[Named]) -> tuple[list[Named], list[LeftOut]]:
    """Names of one form: a few odd ones among many are left out, two groups are refused."""
    forms: defaultdict[str, list[Named]] = defaultdict(list)
    for each in numbered:
        forms[each.label.skeleton].append(each)
    largest = max(forms.values(), key=len)
    odd = [each for form in forms.values() if form is not largest for each in form]
    if not odd:
        return list(numbered), []
    _refuse_mixed_units(numbered)
    if len(largest) < _FEWEST or len(odd) > MOST_ODD * len(numbered):
        raise CheckpointError(two_forms(list(forms.values())))
    example = largest[0].found.label
    reason = (
        f"its name is of another form than the {len(largest)} like {example}; --pattern or --steps reads both"
    )
    return largest, [LeftOut(each.found.label, reason) for each in odd]


def two_forms(forms: Sequence[Sequence[Named]]) -> str:
    """The refusal of names of several forms, with a way to choose the first."""
    ordered = sorted(forms, key=lambda form: natural_key(form[0].found.label))
    names = [[each.found.label for each in form] for form in ordered]
    return (
        f"The names are of {len(forms)} forms, which may be different series: "
        f"{joined(some(each, 2) for each in names)}. Choose one, {_glob(ordered[0], names)}with "
        f"--pattern '{suggested_pattern(names[0][0], names[0])}', or give the steps in order with --steps."
    )


def _glob(form: Sequence[Named], names: Sequence[Sequence[str]]) -> str:
    """A glob for the first form, if one can tell it from the others."""
    pairs = zip(min(names[0]), max(names[0]), strict=False)
    stem = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)).rstrip("0123456789") + "*"
    if stem == "*" or any(fnmatchcase(name, stem) for other in names[1:] for name in other):
        return ""
    return f"with the glob '{escape(_place(form[0].found))}/{stem}' or "


def _refuse_mixed_units(numbered: Sequence[Named]) -> None:
    units: defaultdict[str, list[Named]] = defaultdict(list)
    for each in numbered:
        units[each.label.unit].append(each)
    if len(units) > 1 and units.keys() != {"step", "number"}:
        examples = joined(
            f"{group[0].found.label} ({unit} {group[0].number})" for unit, group in units.items()
        )
        chosen = max(units.values(), key=lambda group: (len(group), group[0].label.unit == "step"))
        pattern = suggested_pattern(chosen[0].found.label)
        raise CheckpointError(
            f"The names count different things: {examples}. Choose one kind of name with "
            f"--pattern '{pattern}', or give the steps in order with --steps."
        )


def _refuse_two_places(numbered: Sequence[Named]) -> None:
    """Steps of several folders, or of several days, may follow each other, but not interleave."""
    places: defaultdict[tuple[str, str], list[Named]] = defaultdict(list)
    for each in numbered:
        day = f" on {each.label.day}" if each.label.day else ""
        places[each.label.stage, _place(each.found) + day].append(each)
    spans = sorted(
        (stage, min(e.number for e in group), max(e.number for e in group), place)
        for (stage, place), group in places.items()
    )
    for (stage, _, high, one), (next_stage, low, _, other) in pairwise(spans):
        if stage == next_stage and low < high:
            raise CheckpointError(
                f"The steps in {one} and in {other} overlap, so these may be two series. "
                "Give one of them, with a glob if they are in one folder, or the steps in order with --steps."
            )


def _refuse_restarts(numbered: Sequence[Named]) -> None:
    """Steps that start again in each epoch are no steps of the run."""
    both = [each for each in numbered if each.label.epoch is not None and each.label.unit == "step"]
    ordered = sorted(both, key=lambda each: (each.label.stage, each.label.epoch, each.number))
    for one, other in pairwise(ordered):
        if one.label.stage == other.label.stage and one.number > other.number:
            raise CheckpointError(
                f"The steps seem to start again in each epoch: {one.found.label}, then {other.found.label}. "
                "Give the steps of the whole run in order with --steps."
            )


def _place(found: FoundCheckpoint) -> str:
    """The folder around what a checkpoint is named after."""
    parts, first = found.source.rstrip("/").split("/"), found.label.split("/")[0]
    for i in range(len(parts) - 1, 0, -1):
        if first in (parts[i], strip_suffix(parts[i])):
            return "/".join(parts[:i])
    return "/".join(parts[:-1])
