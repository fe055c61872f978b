"""Which checkpoints of a stage have the same tensors, so that one odd file does not spoil the others.

Checkpoints belong together if their parameters have the same names and shapes. If two thirds of
them do, those are measured and the others are left out, each with the reason; otherwise it is not
clear which network is meant, and the series is refused. Tensors that are no parameters, that --skip
names, or that are a second name of another tensor may differ: they are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.errors import CheckpointError
from normscope.remarks import LeftOut
from normscope.weights.inventory.absent_ties import tied_name
from normscope.weights.inventory.disagreement import Disagreement, TensorTable, reason_left_out, refusal

NotParameters = Callable[[Sequence[Checkpoint], Sequence[Tensor]], Mapping[str, str]]
"""For checkpoints and tensors that all of them have: name → why it is not a parameter."""


@dataclass(frozen=True)
class CheckpointMajority:
    """The checkpoints that belong together, by index, and those that are left out.

    `tied` maps a name that some of them lack to the name under which they have the same tensor.
    `not_parameters` are the reasons of those tensors that differ between them without harm.
    """

    members: tuple[int, ...]
    left_out: tuple[LeftOut, ...] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    not_parameters: Mapping[str, str] = field(default_factory=dict)


def find_majority(
    checkpoints: Sequence[Checkpoint],
    labels: Sequence[str],
    ignored: Callable[[str], bool],
    not_parameters: NotParameters,
) -> CheckpointMajority:
    """The majority of the checkpoints; a CheckpointError if no two thirds of them agree.

    `ignored` says of a name that its tensor does not count, whatever it is.
    """
    headers = [_header(checkpoint, ignored) for checkpoint in checkpoints]
    alike = _grouped(frozenset(header.contents.items()) for header in headers)
    if len(alike) == 1:
        return CheckpointMajority(tuple(range(len(checkpoints))))
    differing = _differing([headers[members[0]] for members in alike])
    buffers = _buffers([[checkpoints[i] for i in members] for members in alike], differing, not_parameters)
    tied = _tied([name for name in differing if name not in buffers], checkpoints)
    counted = frozenset(differing) - buffers.keys() - tied.keys()
    groups = _grouped(frozenset((n, header.contents.get(n)) for n in counted) for header in headers)
    groups.sort(key=lambda members: -len(members))
    usual = headers[groups[0][0]]
    free = frozenset(differing) - counted
    differences = [Disagreement(usual, headers[members[0]], counted, free) for members in groups[1:]]
    if 3 * len(groups[0]) < 2 * len(checkpoints):
        raise CheckpointError(refusal([[labels[i] for i in members] for members in groups], differences))
    reasons = {i: reason_left_out(d) for d, m in zip(differences, groups[1:], strict=True) for i in m}
    left_out = tuple(LeftOut(labels[i], reasons[i]) for i in sorted(reasons))
    return CheckpointMajority(tuple(groups[0]), left_out, tied, buffers)


def _header(checkpoint: Checkpoint, ignored: Callable[[str], bool]) -> TensorTable:
    tensors = [tensor for name, tensor in checkpoint.tensors.items() if not ignored(name)]
    contents = {t.name: t.shape if t.dtype in WIDTHS else t.dtype for t in tensors}
    return TensorTable(contents, {t.name: t.numel for t in tensors if t.dtype in WIDTHS})


def _grouped(keys: Iterable[Hashable]) -> list[list[int]]:
    """Indices of equal keys, in the order in which the keys appear."""
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        found[key].append(i)
    return list(found.values())


def _differing(headers: Sequence[TensorTable]) -> list[str]:
    """Names that are missing, or different, in one of the headers, and measured in at least one."""
    names = dict.fromkeys(name for header in headers for name in header.contents)
    measured = {name for header in headers for name in header.numel}
    return [n for n in names if n in measured and len({header.contents.get(n) for header in headers}) > 1]


def _buffers(
    groups: Sequence[Sequence[Checkpoint]], names: Iterable[str], not_parameters: NotParameters
) -> dict[str, str]:
    """Those of the names that are a parameter in none of the groups, which have equal headers each."""
    verdicts = []
    for checkpoints in groups:
        tensors = [tensor for tensor in checkpoints[0].tensors.values() if tensor.dtype in WIDTHS]
        verdicts.append((checkpoints[0].tensors, not_parameters(checkpoints, tensors)))
    found = {}
    for name in names:
        reasons = [reasons.get(name) for tensors, reasons in verdicts if name in tensors]
        if all(reasons):
            found[name] = str(reasons[0])
    return found


def _tied(names: Iterable[str], checkpoints: Sequence[Checkpoint]) -> dict[str, str]:
    """Names that some checkpoints lack, and the names under which they have the same tensors."""
    found: dict[str, str] = {}
    for name in names:
        holders = [checkpoint for checkpoint in checkpoints if name in checkpoint.tensors]
        lacking = [checkpoint for checkpoint in checkpoints if name not in checkpoint.tensors]
        others = dict.fromkeys(o for checkpoint in lacking for o in checkpoint.tensors if o not in found)
        if other := tied_name(name, holders, others):
            found[name] = other
    return found
