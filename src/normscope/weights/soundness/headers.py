"""Findings from the headers of a series: names, shapes, dtypes, stored steps and tokens that differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from normscope.anatomy import OUTSIDE_BODY, locate, unwrapped
from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.checkpoints.series.series import Entry
from normscope.remarks import Finding
from normscope.weights.inventory.not_parameters import by_names, not_parameters
from normscope.weights.soundness.findings import listed
from normscope.words import some

MOST_FORMS = 12  # sets of names and shapes; a folder with more is no series


@dataclass(frozen=True)
class Header:
    """What is known about a checkpoint before any weight is read; `tensors` are its parameters."""

    step: int
    tokens: int | None
    stored_step: int | None
    digest: str
    tensors: Mapping[str, Tensor]

    @cached_property
    def storages(self) -> Counter[Hashable]:
        """How many names share each storage."""
        return Counter(tensor.storage for tensor in self.tensors.values())

    @property
    def numel(self) -> int:
        """The number of parameters; tied ones are counted once per name."""
        return sum(tensor.numel for tensor in self.tensors.values())


def read_header(entry: Entry) -> Header:
    """Open a checkpoint, read its table of parameters, and close it."""
    with closing(entry.open()) as checkpoint:
        return header_of(entry, checkpoint)


def header_of(entry: Entry, checkpoint: Checkpoint, counted: Collection[str] | None = None) -> Header:
    """The header of an open checkpoint; `counted` are its parameters, if that is known already."""
    if counted is not None:
        known = {name: tensor for name, tensor in checkpoint.tensors.items() if name in counted}
        return Header(entry.step, entry.tokens, checkpoint.step, checkpoint.digest, known)
    measured = tuple(tensor for tensor in checkpoint.tensors.values() if tensor.dtype in WIDTHS)
    others = _not_parameters(measured)
    kept = {tensor.name: tensor for tensor in measured if tensor.name not in others}
    return Header(entry.step, entry.tokens, checkpoint.step, checkpoint.digest, kept)


@lru_cache(maxsize=8)
def _not_parameters(tensors: tuple[Tensor, ...]) -> frozenset[str]:
    """Judged once for all checkpoints that have the same tensors."""
    return frozenset(by_names(tensors))


def only_parameters(entries: Sequence[Entry], headers: Sequence[Header]) -> tuple[Header, ...]:
    """The headers without tensors that differ between them and are not parameters, judged by content.

    A longer position table is no other vocabulary. One checkpoint of each form is opened again.
    """
    forms: dict[frozenset[tuple[str, tuple[int, ...]]], Entry] = {}
    for entry, header in zip(entries, headers, strict=True):
        forms.setdefault(frozenset((name, tensor.shape) for name, tensor in header.tensors.items()), entry)
    if not 1 < len(forms) <= MOST_FORMS:
        return tuple(headers)
    differing = {name for name, _ in frozenset.union(*forms) - frozenset.intersection(*forms)}
    parameters = {name for entry in forms.values() for name in _parameters(entry)}
    gone = differing - parameters
    return tuple(
        replace(h, tensors={name: t for name, t in h.tensors.items() if name not in gone}) for h in headers
    )


def _parameters(entry: Entry) -> list[str]:
    with closing(entry.open()) as checkpoint:
        measured = [tensor for tensor in checkpoint.tensors.values() if tensor.dtype in WIDTHS]
        others = not_parameters([checkpoint], measured)
    return [tensor.name for tensor in measured if tensor.name not in others]


def find_in_headers(headers: Sequence[Header]) -> list[Finding]:
    """All findings from headers alone; digests are compared together with the sums (`tensor_checks`)."""
    return [
        *_names(headers),
        *_shapes(headers),
        *_dtypes(headers),
        *_stored_steps(headers),
        *_tokens(headers),
    ]


def alike(headers: Sequence[Header]) -> list[int]:
    """Indices of the checkpoints that have at least half of the parameters of the most common header."""
    usual = _most_common(headers, lambda header: frozenset((n, t.shape) for n, t in header.tensors.items()))
    total = max(1, usual.numel)
    shapes = {name: tensor.shape for name, tensor in usual.tensors.items()}
    shared = [
        sum(t.numel for name, t in header.tensors.items() if shapes.get(name) == t.shape)
        for header in headers
    ]
    return [i for i, count in enumerate(shared) if count >= total / 2]


def _most_common(headers: Sequence[Header], key: Callable[[Header], Hashable]) -> Header:
    """The first header that has the most common value of the key."""
    counts = Counter(key(header) for header in headers)
    most = counts.most_common(1)[0][0]
    return next(header for header in headers if key(header) == most)


def _names(headers: Sequence[Header]) -> list[Finding]:
    usual = _most_common(headers, lambda header: frozenset(header.tensors))
    groups: defaultdict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = defaultdict(list)
    for header in headers:
        missing = tuple(n for n in usual.tensors if n not in header.tensors and not _tied(usual, n))
        extra = tuple(n for n in header.tensors if n not in usual.tensors and not _tied(header, n))
        if missing or extra:
            groups[missing, extra].append(header.step)
    return [_name_finding(steps, missing, extra) for (missing, extra), steps in groups.items()]


def _tied(header: Header, name: str) -> bool:
    """Whether another name has the same storage: such a name may or may not be saved."""
    return header.storages[header.tensors[name].storage] > 1


def _name_finding(steps: Sequence[int], missing: Sequence[str], extra: Sequence[str]) -> Finding:
    numbers = {"missing": len(missing), "extra": len(extra)}
    if sorted(map(unwrapped, missing)) == sorted(map(unwrapped, extra)):
        evidence = (
            f"{listed(steps)}: the same tensors under other names, {extra[0]} for {unwrapped(extra[0])}"
        )
        return Finding("name", tuple(steps), evidence, 0.7, numbers)
    parts = [f"lacks {some(missing)}"] if missing else []
    parts += [f"adds {some(extra)}"] if extra else []
    evidence = f"{listed(steps)}: unlike most checkpoints, {' and '.join(parts)}"
    return Finding("name", tuple(steps), evidence, 1.0, numbers)


def _shapes(headers: Sequence[Header]) -> list[Finding]:
    """Tensors with several shapes, grouped by which checkpoints deviate from the most common one."""
    groups: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    changes: dict[str, str] = {}
    for name in dict.fromkeys(name for header in headers for name in header.tensors):
        holders = [header for header in headers if name in header.tensors]
        usual = _most_common(holders, _shape_of(name)).tensors[name].shape
        odd = [header for header in holders if header.tensors[name].shape != usual]
        if odd:
            groups[tuple(header.step for header in odd)].append(name)
            changes[name] = f"{list(usual)} and {list(odd[0].tensors[name].shape)}"
    return [_shape_finding(steps, names, changes) for steps, names in groups.items()]


def _shape_of(name: str) -> Callable[[Header], Hashable]:
    return lambda header: header.tensors[name].shape


def _shape_finding(steps: tuple[int, ...], names: Sequence[str], changes: Mapping[str, str]) -> Finding:
    vocabulary = all(locate(name).role in OUTSIDE_BODY for name in names)
    kind, what = ("embedding", "the vocabulary has another size") if vocabulary else ("shape", "other shapes")
    evidence = f"{listed(steps)}: {what} in {some(names)} ({names[0]} is {changes[names[0]]})"
    return Finding(kind, steps, evidence, 1.0, {"tensors": len(names)})


def _dtypes(headers: Sequence[Header]) -> list[Finding]:
    """Checkpoints whose parameters have other dtypes than those of most checkpoints."""
    common = [name for name in headers[0].tensors if all(name in header.tensors for header in headers)]

    def dtypes(header: Header) -> Hashable:
        return tuple(header.tensors[name].dtype for name in common)

    usual = _most_common(headers, dtypes)
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    counts: Counter[tuple[str, str]] = Counter()
    for header in headers:
        pairs = Counter((usual.tensors[n].dtype, header.tensors[n].dtype) for n in common)
        for (was, now), count in pairs.items():
            if was != now:
                found[was, now].append(header.step)
                counts[was, now] = max(counts[was, now], count)
    return [
        Finding(
            "dtype",
            tuple(steps),
            f"{listed(steps)}: {counts[was, now]} of {len(common)} tensors are {now}, usually {was}",
            1.0,
            {"tensors": counts[was, now], "dtype": now, "usual": was},
        )
        for (was, now), steps in found.items()
    ]


def _stored_steps(headers: Sequence[Header]) -> list[Finding]:
    """Checkpoints whose stored step contradicts their label.

    A file may count from 0, in micro-batches or in another unit: an offset or a
    factor that most checkpoints share is a convention, not a contradiction.
    """
    known = [header for header in headers if header.stored_step is not None]
    odd = _against_convention(known) if len(known) >= 2 else []
    if not odd:
        return []
    steps = tuple(header.step for header in odd)
    shown = some([f"{header.step} contains step {header.stored_step}" for header in odd])
    evidence = f"the step stored inside contradicts the label: {shown}"
    return [Finding("order", steps, evidence, 0.95, {"checkpoints": len(odd)})]


def _against_convention(known: Sequence[Header]) -> list[Header]:
    pairs = [(header, header.step, header.stored_step or 0) for header in known]
    offsets = Counter(stored - step for _, step, stored in pairs)
    factors = Counter(stored / step for _, step, stored in pairs if step > 0)
    offset, agree = offsets.most_common(1)[0]
    factor, agree_factor = factors.most_common(1)[0] if factors else (1.0, 0)
    if max(agree, agree_factor) * 2 > len(pairs):
        if agree >= agree_factor:
            return [header for header, step, stored in pairs if stored - step != offset]
        return [header for header, step, stored in pairs if stored != step * factor]
    return _decreasing(known, [stored for _, _, stored in pairs])


def _tokens(headers: Sequence[Header]) -> list[Finding]:
    """Checkpoints whose label has fewer tokens than that of an earlier step."""
    known = [header for header in headers if header.tokens is not None]
    odd = _decreasing(known, [header.tokens or 0 for header in known])
    if not odd:
        return []
    steps = tuple(header.step for header in odd)
    evidence = f"the tokens in the labels decrease while the steps increase, at {listed(steps)}"
    return [Finding("order", steps, evidence, 0.95, {"checkpoints": len(odd)})]


def _decreasing(headers: Sequence[Header], values: Iterable[int]) -> list[Header]:
    """The headers whose value is below an earlier one."""
    found, highest = [], -1
    for header, value in zip(headers, values, strict=True):
        if value < highest:
            found.append(header)
        highest = max(highest, value)
    return found
