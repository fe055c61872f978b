"""The user's own pattern for names, and the patterns that refusals suggest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from normscope.checkpoints.series.file_groups import FoundCheckpoint
from normscope.checkpoints.series.name_reader import parse_count
from normscope.checkpoints.series.names import Label, parse_label
from normscope.errors import UsageError
from normscope.words import joined, some

GROUPS = ("step", "epoch", "stage", "tokens")
_IN_NAME = re.compile(r"([0-9]{1,18}(?:\.[0-9]+(?=[kKmMbB](?![a-zA-Z])))?)([kKmMbB](?![a-zA-Z0-9]))?")
_NUMBER = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(e[0-9]{1,2}|[kmbt])?", re.IGNORECASE)


class NamePattern:
    """A regular expression with the named groups step, epoch, stage and tokens; the first two are numbers."""

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str):
            raise UsageError(f"pattern must be a regular expression as text; got {pattern!r}")
        try:
            self._regex = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"pattern {pattern!r} is not a regular expression: {error}") from None
        groups = self._regex.groupindex
        unknown = [name for name in groups if name not in GROUPS]
        if unknown or not {"step", "epoch"} & groups.keys():
            raise UsageError(
                f"pattern {pattern!r} must say what is the step or epoch, as in 'model_(?P<epoch>\\d+)_'; "
                f"the groups may be {joined(GROUPS)}" + (f"; got {unknown[0]}" if unknown else "")
            )

    def read(self, found: FoundCheckpoint) -> Label | None:
        """What the label or the file name says; None if the pattern does not match."""
        names = (found.label, found.source.rstrip("/").rsplit("/", 1)[-1])
        match = next((match for name in names if (match := self._regex.search(name))), None)
        if match is None:
            return None
        values = {name: value for name, value in match.groupdict().items() if value}
        step, epoch, tokens = (self._count(name, values.get(name)) for name in ("step", "epoch", "tokens"))
        if step is None and epoch is None:
            return None
        unit = "epoch" if step is None else "step"
        return Label(step, values.get("stage", ""), tokens, epoch, "numbered", unit)

    def no_match(self, found: Sequence[FoundCheckpoint]) -> UsageError:
        """The error if no name matches."""
        names = some([checkpoint.label for checkpoint in found], 5)
        return UsageError(f"pattern {self._regex.pattern!r} matches none of the names: {names}")

    def _count(self, group: str, text: str | None) -> int | None:
        if text is None:
            return None
        number = _NUMBER.fullmatch(text)
        value = parse_count(number.group(1), number.group(2) or "") if number else None
        if value is None:
            raise UsageError(
                f"pattern {self._regex.pattern!r} found {text!r} as the {group}, which is not an integer; "
                "1000, 10k and 1.5M are"
            )
        return value


def suggested_pattern(name: str, alike: Sequence[str] = (), varying: Sequence[str] = ()) -> str:
    """A pattern that reads names like this one: its step if that is known, or else its last number.

    With the names `alike`, it matches only names of their form; `varying` are names of its form, which
    show the numbers that change. It is empty if there is nothing to read a step from.

    >>> print(suggested_pattern("model_3_7_500"))
    model_\\d+_\\d+_(?P<step>\\d+)
    """
    label = parse_label(name)
    group = "epoch" if label.unit == "epoch" and label.step is None else "step"
    numbers = [match for match in _IN_NAME.finditer(name) if not _is_fraction(name, match)]
    if not numbers:
        return ""
    constant = _constant_numbers(alike)
    still = _constant_numbers(varying)
    changing = [match for match in numbers if match[0] not in still] or numbers
    chosen = next((match for match in numbers if _value(match) == label.number), changing[-1])
    form = r"\d+" if chosen[0].isdigit() else r"[\d.]+[kKmMbB]?"
    before = _general(re.sub("(?<=[_=.: ])-$", "", name[: chosen.start()]), constant)  # step_-1 is no step
    after = _general(name[chosen.end() :], constant)
    return rf"^{before}(?P<{group}>{form}){after}$" if alike else rf"{before}(?P<{group}>{form})"


def _is_fraction(name: str, match: re.Match[str]) -> bool:
    """Whether an integer is one side of a decimal point: 4 and 12 in 4.12."""
    before, after = name[max(0, match.start() - 2) : match.start()], name[match.end() : match.end() + 2]
    return bool(re.fullmatch(r"[0-9]\.", before) or re.fullmatch(r"\.[0-9]", after))


def _value(match: re.Match[str]) -> int | None:
    return parse_count(match[1], match[2] or "")


def _constant_numbers(names: Sequence[str]) -> set[str]:
    """The numbers that all names contain: they tell a run, not a step."""
    return set.intersection(*(set(re.findall("[0-9]+", name)) for name in names)) if names else set()


def _general(text: str, constant: set[str]) -> str:
    r"""Text as a regular expression, with \d+ for the numbers that change."""
    escaped = re.escape(text).replace(r"\-", "-").replace("\\ ", " ")
    return re.sub("[0-9]+", lambda match: match[0] if match[0] in constant else r"\d+", escaped)
