"""How the tensors of one checkpoint differ from those of the others, in words, and how to leave that out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape

from normscope.words import some

MOST_PATTERNS = 4  # with more, a list of patterns helps nobody
SHOWN = 3  # groups that a refusal describes


@dataclass(frozen=True)
class TensorTable:
    """What a checkpoint says about the tensors that count: name → shape, or a dtype that is not measured."""

    contents: Mapping[str, tuple[int, ...] | str]
    numel: Mapping[str, int]

    @property
    def elements(self) -> int:
        """The number of elements of all tensors that are measured."""
        return sum(self.numel.values())


@dataclass(frozen=True)
class Disagreement:
    """The differences between a header and the usual one, in the tensors that count."""

    usual: TensorTable
    own: TensorTable
    names: frozenset[str]
    """Names whose tensors differ somewhere in the series; only these are compared."""
    free: frozenset[str] = frozenset()
    """Names that are not compared although they differ somewhere; a pattern may match them."""

    @property
    def lacks(self) -> list[str]:
        """Names that only the usual header has."""
        return [n for n in self.usual.contents if n in self.names and n not in self.own.contents]

    @property
    def adds(self) -> list[str]:
        """Names that only this header has."""
        return [n for n in self.own.contents if n in self.names and n not in self.usual.contents]

    @property
    def changes(self) -> list[str]:
        """Names with another shape or dtype."""
        both = [n for n in self.usual.contents if n in self.names and n in self.own.contents]
        return [n for n in both if self.usual.contents[n] != self.own.contents[n]]

    @property
    def is_another_network(self) -> bool:
        """Whether less than half of the elements of either header are alike in both."""
        same = [n for n, what in self.usual.contents.items() if self.own.contents.get(n) == what]
        shared = sum(self.usual.numel.get(n, 0) for n in same)
        return 2 * shared < max(self.usual.elements, self.own.elements)

    def sentence(self) -> str:
        """The differences, as the end of a sentence about the checkpoint."""
        if not self.own.numel:
            return "contains no tensor that is measured"
        adapter = [name for name in self.adds if re.search(r"(^|[._])lora_", name)]
        if adapter and self.is_another_network:
            return f"is an adapter (LoRA), not the whole network: it has {some(adapter, 1)}"
        if self.is_another_network:
            return f"is another network: it {self._parts()}"
        return self._parts()

    def _parts(self) -> str:
        lacks, adds, changes = self.lacks, self.adds, self.changes
        parts = []
        if lacks:
            parts.append(f"lacks {len(lacks)} of {len(self.usual.numel)} tensors, {_example(lacks)}")
        if adds:
            count = "1 tensor" if len(adds) == 1 else f"{len(adds)} tensors"
            parts.append(f"has {count} that the others lack, {_example(adds)}")
        if changes:
            name, more = changes[0], f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
            own, usual = _shown(self.own.contents[name]), _shown(self.usual.contents[name])
            parts.append(f"has other shapes: {name} is {own} instead of {usual}{more}")
        return ", and ".join(parts)

    def patterns(self) -> list[str]:
        """Values of --skip that leave out all that differs; none if that would leave little."""
        differing = {*self.lacks, *self.adds, *self.changes}
        others = {*self.usual.contents, *self.own.contents} - differing - self.free
        found = globs(differing, others)
        return found if not self.is_another_network and len(found) <= MOST_PATTERNS else []


def reason_left_out(difference: Disagreement) -> str:
    """Why a checkpoint is left out, and what would bring it back."""
    patterns = difference.patterns()
    way = (
        f"; it can be measured if that is left out of all, with {skip_options(patterns)}" if patterns else ""
    )
    return difference.sentence().removeprefix("is ") + way


def refusal(groups: Sequence[Sequence[str]], differences: Sequence[Disagreement]) -> str:
    """No group of checkpoints is a clear majority: which there are, and how to choose one.

    `groups` are their labels, the largest first; `differences` tell each other group from it.
    """
    total = sum(map(len, groups))
    told = [
        f"{_each(labels)} {difference.sentence()}"
        for labels, difference in list(zip(groups[1:], differences, strict=True))[:SHOWN]
    ]
    more = f"; and {len(groups) - 1 - SHOWN} more groups" if len(groups) - 1 > SHOWN else ""
    patterns = _all_patterns(differences)
    parts = (
        " If they are parts of one checkpoint, join them in one file first." if _disjoint(differences) else ""
    )
    skip = f", or leave out what differs with {skip_options(patterns)}" if patterns else ""
    return (
        f"the {total} checkpoints do not have the same tensors, and fewer than two thirds of them agree. "
        f"Compared with {_like(groups[0])}: {'; '.join(told)}{more}. "
        f"Scan one group only, with a glob or a list of its files{skip}.{parts}"
    )


def _disjoint(differences: Sequence[Disagreement]) -> bool:
    """Whether a group has no tensor of the usual names."""
    return any(d.usual.contents.keys().isdisjoint(d.own.contents) for d in differences)


def _each(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"each of {_like(labels)}"


def _like(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"the {len(labels)} checkpoints {labels[0]} … {labels[-1]}"


def _all_patterns(differences: Sequence[Disagreement]) -> list[str]:
    if any(difference.is_another_network for difference in differences):
        return []
    differing = {n for d in differences for n in (*d.lacks, *d.adds, *d.changes)}
    every = {n for d in differences for n in (*d.usual.contents, *d.own.contents) if n not in d.free}
    found = globs(differing, every - differing)
    return found if len(found) <= MOST_PATTERNS else []


def skip_options(patterns: Sequence[str]) -> str:
    """The patterns as they are typed.

    >>> skip_options(["cls.*", "pooler.bias"])
    "--skip 'cls.*' --skip 'pooler.bias'"
    """
    return " ".join(f"--skip '{pattern}'" for pattern in patterns)


def globs(names: Collection[str], others: Collection[str]) -> list[str]:
    """Patterns that match all of these names and none of the others; incomplete if more than a few.

    >>> globs(["cls.w", "cls.b", "h.0.x", "h.1.x"], ["h.0.y", "h.1.y"])
    ['cls.*', 'h.*.x']
    """
    found: list[str] = []
    for name in sorted(names):
        if len(found) > MOST_PATTERNS:
            break
        if not any(fnmatchcase(name, pattern) for pattern in found):
            several = (p for p in _wider(name) if sum(fnmatchcase(n, p) for n in names) > 1)
            free = (p for p in several if not any(fnmatchcase(other, p) for other in others))
            found.append(next(free, escape(name)))
    return found


def _wider(name: str) -> Iterator[str]:
    """Patterns that match the name and similar ones, the widest first."""
    ends = [end.end() for end in re.finditer(r"[./]", name)]
    layers = re.sub(r"(?<![^./])[0-9]+(?![^./])", "*", escape(name))
    yield from (f"{escape(name[:end])}*" for end in ends[:1])
    yield layers
    yield from (f"{escape(name[:end])}*" for end in ends[1:])


def _example(names: Sequence[str]) -> str:
    return f"for example {names[0]}" if len(names) > 1 else f"namely {names[0]}"


def _shown(what: tuple[int, ...] | str) -> str:
    return what if isinstance(what, str) else str(list(what))
