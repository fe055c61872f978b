"""What is measured of a stage: its checkpoints that belong together, and the parameters they have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.errors import CheckpointError
from normscope.remarks import LeftOut
from normscope.weights.inventory.majority import CheckpointMajority, find_majority
from normscope.weights.inventory.not_parameters import by_names, not_parameters
from normscope.weights.inventory.prefixes import Names, common_spelling
from normscope.weights.inventory.quantised import refuse_quantised
from normscope.weights.inventory.renamed_checkpoint import RenamedCheckpoint
from normscope.weights.inventory.stored_copies import only_averages, twin_networks, twin_note
from normscope.words import some


@dataclass(frozen=True)
class TensorChoice:
    """What the user wants to be measured: patterns of tensor names to leave out and to keep.

    With `intersect`, all checkpoints are measured, in the tensors that all of them have: for an
    audit, whose subject are the differences. `counted` has the names of tied tensors that the run file
    counts under another name, and that name: it is theirs in every checkpoint that has only one of the two.
    """

    skip: Collection[str] = ()
    keep: Collection[str] = ()
    intersect: bool = False
    counted: Mapping[str, str] = field(default_factory=dict)

    def skips(self, names: Iterable[str]) -> bool:
        """Whether one of a tensor's names is to be left out."""
        return bool(self.skip) and any(fnmatchcase(name, pattern) for name in names for pattern in self.skip)

    def keeps(self, names: Iterable[str]) -> bool:
        """Whether one of a tensor's names is to be kept, whatever the rules say."""
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.keep)


@dataclass(frozen=True)
class Inventory:
    """The parameters that are measured, and the tensors and checkpoints that are left out."""

    tensors: tuple[Tensor, ...]
    tied_to: Mapping[str, str]
    """Name → the other name of the same tensor, which is counted instead."""
    skipped: Mapping[str, str]
    """Name → why it is left out."""
    members: tuple[int, ...] = ()
    """Which of the checkpoints are measured."""
    renamed: Mapping[int, Names] = field(default_factory=dict)
    """Checkpoint → its stored names that the others spell differently, and their spelling."""
    left_out: tuple[LeftOut, ...] = ()
    differing: tuple[str, ...] = ()
    """Parameters that are skipped because some of the checkpoints lack them, or have another shape."""
    notes: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    """First words of names under which the same network is stored again, perhaps as a copy."""

    def named(self, i: int, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint, given by its index, under the names of this inventory."""
        return RenamedCheckpoint(checkpoint, self.renamed[i]) if i in self.renamed else checkpoint


def take_inventory(
    checkpoints: Sequence[Checkpoint], labels: Sequence[str], choice: TensorChoice
) -> Inventory:
    """Choose what to measure: floating-point parameters that the majority has, with the same shapes."""
    spelling = common_spelling([checkpoint.tensors for checkpoint in checkpoints])
    all_names = [_as_counted(c, names, choice) for c, names in zip(checkpoints, spelling, strict=True)]
    renamed = {i: names for i, names in enumerate(all_names) if names}
    same = [RenamedCheckpoint(c, renamed[i]) if i in renamed else c for i, c in enumerate(checkpoints)]
    wanted = _Wanted(choice, _all_names(renamed.values()))
    majority = _majority(same, labels, wanted)
    members = _Members([same[i] for i in majority.members], [labels[i] for i in majority.members], wanted)
    refuse_quantised(members.checkpoints[0], members.labels[0], wanted.skips)
    skipped = {name: why for checkpoint in members.checkpoints for name, why in checkpoint.skipped.items()}
    reasons = members.reasons(majority)
    measured = [tensor for tensor in members.tensors() if tensor.name not in reasons]
    if not measured:
        raise CheckpointError(_nothing_left({**skipped, **reasons}, members.labels))
    absent = members.absent(majority.tied, {tensor.name for tensor in measured})
    tied = _ties(members.checkpoints, _counted_first(measured, choice))
    for tensor in absent:
        other = majority.tied[tensor.name]
        tied[tensor.name] = tied.get(other, other)
        reasons.pop(tensor.name, None)
    stored = {tensor.name: tensor for tensor in (*measured, *absent)}
    for name, counted in choice.counted.items():
        if name not in stored and name not in reasons and counted in stored:
            absent.append(replace(stored[counted], name=name))
            tied[name] = tied.get(counted, counted)
    twins = twin_networks(members.checkpoints[-1], [t for t in measured if t.name not in tied])
    return Inventory(
        tensors=(*measured, *absent),
        tied_to=tied,
        skipped={**skipped, **reasons},
        members=majority.members,
        renamed={i: names for i, names in renamed.items() if i in majority.members},
        left_out=majority.left_out,
        differing=tuple(name for name, why in reasons.items() if why == members.not_common(name)),
        notes=(
            *_spelling_notes({i: spelling[i] for i in majority.members if spelling[i]}, labels),
            *filter(None, [only_averages(tensor.name for tensor in measured)]),
            *([twin_note(twins)] if twins else []),
        ),
        twins=tuple(twins),
    )


def _as_counted(checkpoint: Checkpoint, spelling: Names, choice: TensorChoice) -> Names:
    """The names of a checkpoint that are spelled otherwise, with those of tied tensors that it has once."""
    names = {stored: spelling.get(stored, stored) for stored in checkpoint.tensors} if choice.counted else {}
    ties = {choice.counted[name]: stored for stored, name in names.items() if name in choice.counted}
    return {**spelling, **{stored: name for name, stored in ties.items() if name not in names.values()}}


def _counted_first(tensors: Sequence[Tensor], choice: TensorChoice) -> list[str]:
    """Their names; of tied ones that of the tensor that is counted comes first."""
    return sorted((tensor.name for tensor in tensors), key=lambda name: name in choice.counted)


def _all_names(renamed: Iterable[Names]) -> dict[str, set[str]]:
    """Name → the names under which some checkpoints store it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for names in renamed:
        for stored, name in names.items():
            found[name].add(stored)
    return dict(found)


@dataclass(frozen=True)
class _Wanted:
    """The user's choice, which may use the common name of a tensor or a stored one."""

    choice: TensorChoice
    stored: Mapping[str, Collection[str]]

    def skips(self, name: str) -> bool:
        return self.choice.skips((name, *self.stored.get(name, ())))

    def not_parameters(self, checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor]) -> dict[str, str]:
        """Name → why it is not a parameter, except for those that the user keeps."""
        reasons = not_parameters(checkpoints, tensors)
        return {
            name: reason
            for name, reason in reasons.items()
            if not self.choice.keeps((name, *self.stored.get(name, ())))
        }


def _majority(
    checkpoints: Sequence[Checkpoint], labels: Sequence[str], wanted: _Wanted
) -> CheckpointMajority:
    if wanted.choice.intersect:
        return CheckpointMajority(tuple(range(len(checkpoints))))
    return find_majority(checkpoints, labels, wanted.skips, wanted.not_parameters)


@dataclass(frozen=True)
class _Members:
    """The checkpoints that are measured, under common names."""

    checkpoints: Sequence[Checkpoint]
    labels: Sequence[str]
    wanted: _Wanted

    def tensors(self) -> list[Tensor]:
        """The tensors of all of them together, each as the first that has it stores it."""
        found: dict[str, Tensor] = {}
        for checkpoint in self.checkpoints:
            for name, tensor in checkpoint.tensors.items():
                found.setdefault(name, tensor)
        return list(found.values())

    def reasons(self, majority: CheckpointMajority) -> dict[str, str]:
        """Name → why it is not measured."""
        found = {}
        candidates = []
        tensors = self.tensors()
        floats = [t for t in tensors if t.dtype in WIDTHS]
        buffers = by_names(floats, [t.name for t in tensors]) | dict(majority.not_parameters)
        for tensor in tensors:
            name = tensor.name
            reason = "left out by --skip" if self.wanted.skips(name) else self._unmeasured(name)
            if reason is None and (reason := self.not_common(name)) is not None:
                reason = buffers.get(name, reason)
            if reason is None:
                candidates.append(tensor)
            else:
                found[name] = reason
        return found | self.wanted.not_parameters(self.checkpoints, candidates)

    def _unmeasured(self, name: str) -> str | None:
        if all(c.tensors[name].numel == 0 for c in self.checkpoints if name in c.tensors):
            return "it has no elements"
        dtypes = {c.tensors[name].dtype for c in self.checkpoints if name in c.tensors}
        return None if dtypes & WIDTHS.keys() else _in_plain_words(dtypes.pop())

    def not_common(self, name: str) -> str | None:
        """Why a tensor cannot be followed through all checkpoints; None if it can."""
        found = [checkpoint.tensors.get(name) for checkpoint in self.checkpoints]
        absent = [label for label, tensor in zip(self.labels, found, strict=True) if tensor is None]
        if absent:
            return f"missing in {some(absent, 1)}"
        for tensor, label in zip(found, self.labels, strict=True):
            if tensor is not None and found[0] is not None and tensor.shape != found[0].shape:
                return f"its shape {list(found[0].shape)} becomes {list(tensor.shape)} in {label}"
            if tensor is not None and tensor.dtype not in WIDTHS:
                return f"it becomes {tensor.dtype} in {label}"
        return None

    def absent(self, tied: Mapping[str, str], measured: Collection[str]) -> list[Tensor]:
        """Tensors that some of them have only under another name, which is measured."""
        return [t for t in self.tensors() if tied.get(t.name) in measured and t.name not in measured]


def _in_plain_words(dtype: str) -> str:
    """Why a tensor of a dtype that is not measured is left out."""
    if dtype == "bool":
        return "a mask: true or false, not a parameter (bool)"
    if dtype.startswith("complex"):
        return f"complex numbers, which are not measured ({dtype})"
    if dtype.startswith(("int", "uint")):
        return f"integers: an index, a counter or packed values, not measured ({dtype})"
    return f"{dtype} is not one of the floating-point dtypes that are measured"


def _nothing_left(skipped: Mapping[str, str], labels: Sequence[str]) -> str:
    if not skipped:
        return "the checkpoints contain no tensors: there is nothing to measure"
    name, reason = next(iter(skipped.items()))
    one = len(labels) == 1
    what = f"{labels[0]} contains no parameters" if one else "no parameter is common to all checkpoints"
    name = name if name.isprintable() else repr(name)
    if len(skipped) == 1:
        return f"{what}: the only tensor was left out ({name}: {reason})"
    return f"{what}: all {len(skipped)} tensors were left out (for example {name}: {reason})"


def _ties(checkpoints: Sequence[Checkpoint], names: Sequence[str]) -> dict[str, str]:
    """Names that share their storage with an earlier name in every checkpoint, and that name."""
    first: dict[object, str] = {}
    tied = {}
    for name in names:
        key = tuple(checkpoint.tensors[name].storage for checkpoint in checkpoints)
        if key in first:
            tied[name] = first[key]
        else:
            first[key] = name
    return tied


def _spelling_notes(renamed: Mapping[int, Names], labels: Sequence[str]) -> tuple[str, ...]:
    """Sentences about checkpoints whose names were read as those of the others."""
    groups: dict[tuple[str, str], list[str]] = {}
    for i, names in renamed.items():
        groups.setdefault(next(iter(names.items())), []).append(labels[i])
    return tuple(
        f"{_counted(several)} {stored} where the others have {new}: names that differ only by a prefix "
        "are read as the same tensors"
        for (stored, new), several in groups.items()
    )


def _counted(labels: Sequence[str]) -> str:
    return f"{labels[0]} has" if len(labels) == 1 else f"{len(labels)} checkpoints ({some(labels)}) have"
