"""Names whose numbers may be steps or not: the refusals, each with the option that settles it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from normscope.checkpoints.series.families import MOST_ODD, Named, two_forms
from normscope.checkpoints.series.file_groups import FoundCheckpoint
from normscope.checkpoints.series.name_pattern import suggested_pattern
from normscope.errors import CheckpointError
from normscope.words import some

_ANY_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[kmbt](?![a-z]))?")
_HASH = re.compile(r"(.*?)([0-9a-f]{2,})")
_FEWEST = 3  # names with a number that settle what another of their form means
_REVISIONS = (
    "; or --revisions 'step*' if its revisions are a series, --revisions commits:main if its commits are"
)
_MOST_SHOWN = 6  # checkpoints for which a refusal shows the whole option


def settle(named: Sequence[Named]) -> list[Named]:
    """Read a number that could be a size as the others of its form: resnet_50 beside resnet_1 to 99."""
    forms: dict[str, list[Named]] = {}
    for each in named:
        forms.setdefault(_form(each), []).append(each)
    return [_as_others(each, forms[_form(each)]) for each in named]


def _as_others(each: Named, alike: Sequence[Named]) -> Named:
    numbers = re.findall("[0-9]+", each.found.label) if each.label.kind == "plain" else []
    if len(numbers) != 1:
        return each
    bare = [other.label for other in alike if other.label.kind == "numbered" and other.label.unit == "number"]
    if len(bare) < max(_FEWEST, len(alike) / 2):
        return each
    return Named(each.found, replace(bare[0], step=int(numbers[0])))


def refuse_doubtful(numbered: Sequence[Named], named: Sequence[Named]) -> None:
    """Refuse names that are read as steps while others like them, or most of the others, are not."""
    several = [each for each in named if each.label.kind == "several"]
    plain = [each for each in named if each.label.kind == "plain"]
    forms = {each.label.skeleton for each in numbered}
    coarse = {_form(each) for each in numbered}
    alike = [each for each in several if each.label.skeleton in forms]
    alike += [each for each in plain if _form(each) in coarse]
    if alike:
        raise CheckpointError(doubtful(alike))
    if len(several) > MOST_ODD * (len(several) + len(numbered)):
        raise CheckpointError(doubtful(several))
    _refuse_hashes(numbered, plain)


def doubtful(several: Sequence[Named]) -> str:
    """The refusal of names that have several numbers, or one that may be something else."""
    forms: dict[str, list[Named]] = {}
    for each in several:
        forms.setdefault(_form(each), []).append(each)
    if len(forms) > 1:
        return two_forms(list(forms.values()))
    names = [each.found.label for each in several]
    pattern = suggested_pattern(names[0], varying=names)
    say = f"Say it with --pattern '{pattern}', or give" if pattern else "Give"
    return f"It is not clear which number is the step: {some(names)}. {say} the steps in order with --steps."


def steps_to_give(found: Sequence[FoundCheckpoint], hint: str = "") -> str:
    """What to do about checkpoints without steps, ready to be typed where there are few."""
    if len(found) == 1:
        hub = found[0].source.startswith("hf://")
        return f"Give it one, for example --steps 0{hint}{_REVISIONS if hub else ''}."
    shown = ",".join(str(1000 * (i + 1)) for i in range(len(found)))
    shown = shown if len(found) <= _MOST_SHOWN else "1000,2000,…"
    names = some([each.label for each in found])
    return (
        f"If these {len(found)} are checkpoints of one training, give their steps in this order ({names}), "
        f"for example --steps {shown}{hint}; otherwise scan one of them."
    )


def _form(each: Named) -> str:
    """The name with one mark for every number, whatever it means."""
    return _ANY_NUMBER.sub("#", each.found.label.lower())


def _refuse_hashes(numbered: Sequence[Named], plain: Sequence[Named]) -> None:
    """A hash without letters looks like a number; the others of its length have letters."""
    hashes = {_hash_form(each) for each in plain}
    found = [each for each in numbered if each.label.unit == "number" and _hash_form(each) in hashes - {None}]
    if found:
        names = some([each.found.label for each in (*found, *plain)])
        raise CheckpointError(
            f"The names seem to be hashes ({names}), which say nothing about steps; "
            "give the steps in order with --steps."
        )


def _hash_form(each: Named) -> tuple[str, int] | None:
    found = _HASH.fullmatch(each.found.label.lower())
    return (found[1], len(found[2])) if found else None
