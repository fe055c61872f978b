"""Tensors whose names differ only by a prefix from one checkpoint to another: which name is which.

DDP, FSDP, torch.compile, DeepSpeed, PEFT and model classes with a task head put words in front of
the same names (`module.`, `_orig_mod.`, `base_model.model.`, `bert.`), FSDP and activation
checkpointing also inside, and LoRA (`base_layer.`). The spelling of most checkpoints is used for all.

A prefix is found from the names alone, so it may be any word, with three exceptions: a word that
means a copy or another network (`ema.`, `critic.`), a prefix that is not the only candidate
(`encoder.` and `decoder.` in front of the same names), and one that explains less than half of
the elements. Such names are not the same tensors.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from normscope.checkpoints.base import Tensor

Names = Mapping[str, str]
"""Stored name → name that the other checkpoints have for the same tensor."""

WRAPPERS = re.compile(
    r"(?<![^./])(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module"
    r"|_flax_module|_wrapped_module|base_layer)[./]"
)
OTHER_NETWORKS = re.compile(
    r"(?<![a-z])(?:[a-z]_)?(?:ema|swa|avg|net_?[gd])(?![a-z])|[gd]_net|averag|shadow|polyak|teacher|student|target"
    r"|online|actor|critic|policy|value|reward|reference|(?<![a-z])ref(?![a-z])|generator|discriminator"
    r"|optim|exp_?avg|grad|master|momentum|_[qk](?![a-z])"
)
"""Words in a prefix that stand for a copy of the network, or for another one."""
STACKS = re.compile(r"encoder|decoder|text|vision|image|audio|unet|vae")
"""First words that tell two networks apart although all else in their names is equal."""
ENDS = re.compile(r"[./]")
LONGEST = 8  # words of a prefix
RIVAL = 0.5  # a second prefix that fits this share of the names makes the first one a guess


def common_spelling(tables: Sequence[Mapping[str, Tensor]]) -> list[Names]:
    """For each checkpoint's table of tensors, its names that the others spell differently.

    Tables are compared with the most common spelling; those that do not fit it with the next one.
    """
    spellings: dict[frozenset[str], list[int]] = defaultdict(list)
    for i, table in enumerate(tables):
        spellings[frozenset(table)].append(i)
    found: list[Names] = [{} for _ in tables]
    references: list[_Reference] = []
    for members in sorted(spellings.values(), key=lambda members: -len(members)):
        own = tables[members[0]]
        names = next((names for reference in references if (names := reference.match(own))), None)
        if names is None:
            references.append(_Reference(own))
            continue
        for i in members:
            found[i] = {stored: name for stored, name in names.items() if stored != name}
    return found


@dataclass(frozen=True)
class _Reference:
    """The tensors of one checkpoint, as others are compared with them."""

    tensors: Mapping[str, Tensor]

    @cached_property
    def unwrapped(self) -> dict[str, str]:
        """Name without wrappers → name; empty if two names differ only by a wrapper."""
        return _unique({name: WRAPPERS.sub("", name) for name in self.tensors})

    @cached_property
    def prefixes(self) -> dict[str, list[str]]:
        """Every ending of an unwrapped name → what can be in front of it."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in self.unwrapped:
            for prefix, rest in _cuts(name):
                found[rest].append(prefix)
        return found

    def match(self, tensors: Mapping[str, Tensor]) -> Names | None:
        """The names of another checkpoint, spelled as here; None if it is not the same network."""
        stored = _unique({name: WRAPPERS.sub("", name) for name in tensors})
        if not stored or not self.unwrapped:
            return None
        exchange = self._exchange(stored, tensors)
        if exchange is None:
            return None
        old, new = exchange
        spelled = {}
        for plain, name in stored.items():
            wanted = plain if plain in self.unwrapped else _exchanged(plain, old, new)
            spelled[name] = self.unwrapped.get(wanted, wanted if old and wanted != plain else name)
        return spelled if len(set(spelled.values())) == len(spelled) else None

    def _exchange(self, stored: Names, tensors: Mapping[str, Tensor]) -> tuple[str, str] | None:
        """The prefix to take away and the one to put there; both empty if wrappers explain everything."""
        total = sum(tensor.numel for tensor in tensors.values())
        both = self._first_words(stored)
        votes: Counter[tuple[str, str]] = Counter()
        weight: Counter[tuple[str, str]] = Counter()
        for plain, name in stored.items():
            for pair in {*self._candidates(plain), *both}:
                other = self.tensors.get(self.unwrapped.get(_exchanged(plain, *pair), ""))
                if other is not None and other.shape == tensors[name].shape:
                    votes[pair] += 1
                    weight[pair] += max(1, tensors[name].numel)
        if not votes:
            return None
        best = max(votes, key=lambda pair: (votes[pair], weight[pair], pair == ("", "")))
        rivals = [votes[pair] for pair in votes if pair != best and pair != ("", "")]
        sure = best == ("", "") or max(rivals, default=0) < RIVAL * votes[best]
        return best if sure and 2 * weight[best] >= total else None

    def _candidates(self, plain: str) -> Iterator[tuple[str, str]]:
        """Exchanges of prefixes that turn a name into one that is here."""
        if plain in self.unwrapped:
            yield ("", "")
        for prefix in self.prefixes.get(plain, ()):
            if not OTHER_NETWORKS.search(prefix.lower()):
                yield ("", prefix)
        for prefix, rest in _cuts(plain):
            if rest in self.unwrapped and not OTHER_NETWORKS.search(prefix.lower()):
                yield (prefix, "")

    def _first_words(self, stored: Collection[str]) -> list[tuple[str, str]]:
        """The first word that all names have there, and the one that all have here."""
        there, here = _first_word(stored), _first_word(self.unwrapped)
        words = f"{there} {here}".lower()
        other = OTHER_NETWORKS.search(words) or STACKS.search(words) or _counted(there) == _counted(here)
        return [(there, here)] if there and here and there != here and not other else []


def _exchanged(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name.startswith(old) else name


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """The name cut in two after each of its first dots or slashes."""
    for end in islice(ENDS.finditer(name), LONGEST):
        yield name[: end.end()], name[end.end() :]


def _unique(names: Names) -> dict[str, str]:
    """Value → key; empty if a value appears twice."""
    inverse = {value: key for key, value in names.items()}
    return inverse if len(inverse) == len(names) else {}


def _counted(word: str) -> str:
    """A word without the letter or number that tells it from others: model_a and model_b, net1 and net2."""
    return re.sub(r"(?:_[a-z]|[0-9]+)[./]$", "", word.lower())


def _first_word(names: Collection[str]) -> str:
    """The first word of all names, with its dot; empty if they have several."""
    words = {name[: found.end()] if (found := ENDS.search(name)) else "" for name in names}
    return words.pop() if len(words) == 1 else ""
