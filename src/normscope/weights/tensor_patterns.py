"""Patterns of tensor names that a user gives: each must have an effect, and no two may contradict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from normscope.errors import UsageError
from normscope.words import some


def check_pattern_list(option: str, patterns: object) -> None:
    """Raise UsageError unless `patterns` is a collection of strings."""
    listed = list(patterns) if isinstance(patterns, Collection) and not isinstance(patterns, str) else [None]
    if not all(isinstance(pattern, str) for pattern in listed):
        raise UsageError(f"{option} must be a list of patterns; got {patterns!r}")


def check_patterns(
    skip: Collection[str], keep: Collection[str], names: Collection[str], unmeasured: Mapping[str, str]
) -> None:
    """Refuse a pattern without effect, a tensor both kept and skipped, and one that cannot be measured.

    `names` are all names in the checkpoints; `unmeasured` are those that are not measured, with the reasons.
    """
    for option, patterns in (("skip", skip), ("keep", keep)):
        for pattern in patterns:
            if not _matches(pattern, names):
                raise UsageError(
                    f"{option}={pattern!r} matches no tensor, so it has no effect; "
                    f"the names are {some(list(names))}"
                )
    for pattern in keep:
        _check_kept(pattern, skip, _matches(pattern, names), unmeasured)


def _check_kept(pattern: str, skip: Collection[str], found: list[str], unmeasured: Mapping[str, str]) -> None:
    both = [name for name in found if any(fnmatchcase(name, other) for other in skip)]
    if both:
        raise UsageError(f"keep={pattern!r} and skip both match {some(both)}; choose one of them")
    if all(name in unmeasured for name in found):
        name = found[0]
        raise UsageError(f"keep={pattern!r}: {name} cannot be measured: {unmeasured[name]}")


def _matches(pattern: str, names: Collection[str]) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]
