"""Checks that the configs of the lab share; each names the field, what was expected and what came."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from functools import cache
from typing import Any, SupportsIndex, get_args

from normscope.errors import UsageError
from normscope.network.places.programs import object_name
from normscope.option_checks import check_kind, check_number
from normscope.schedule import Schedule
from normscope.schedule import parse as parse_schedule


def check_choices(config: object, **choices: Any) -> None:
    """Refuse a field whose value is not in its Literal type."""
    for name, literal in choices.items():
        value, allowed = getattr(config, name), get_args(literal)
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def check_at_least(config: object, **bounds: float) -> None:
    """Refuse a field that is below its bound, or NaN; None is no number and passes."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and not value >= bound:  # NaN is not
            raise UsageError(f"{name} must be at least {bound}, not {value}")


def check_finite(config: object) -> None:
    """Refuse NaN and infinity in every field that is a float."""
    for name, value in vars(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name} must be a finite number, not {value}")


def check_fractions(config: object, *names: str) -> None:
    """Refuse a field outside [0, 1); None passes."""
    for name in names:
        if getattr(config, name) is not None:
            check_number(name, getattr(config, name), 0, 1)


def convert_fields(config: Any) -> None:
    """Give every field of a new config the type it is declared with; refuse what cannot have it."""
    kind: Any = type(config)
    for name, hint in _hints(kind).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(hint):
            check_kind(name, value, typing.cast(type, hint))
        else:
            object.__setattr__(config, name, convert(name, value, hint))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def convert(name: str, value: Any, hint: Any) -> Any:
    """Convert a value to the type of the field: text is parsed, an int is accepted for a float.

    A field of type `str | Any` takes an object or its name, and holds the name.
    """
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None or (isinstance(value, str) and value.lower() == "none" and type(None) in allowed):
        if type(None) in allowed:
            return None
        raise UsageError(f"{name} cannot be none")
    if Any in allowed:
        return object_name(value)
    kind = next(option for option in allowed if option is not type(None))
    try:
        return _as_kind(value, kind)
    except (TypeError, ValueError, OverflowError):
        expected = getattr(kind, "__name__", str(kind))
        raise UsageError(f"{name} must be of type {expected}, not {value!r}") from None


def _as_kind(value: Any, kind: Any) -> Any:
    if kind is Schedule:
        return _as_schedule(value)
    if kind is bool:
        return _as_bool(value)
    if kind is int:
        return _as_int(value)
    if kind is float:
        return float(value)
    return str(value)  # a name from a Literal, which the dataclass checks


def _as_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]


def _as_schedule(value: Any) -> Schedule:
    found = parse_schedule(value) if isinstance(value, str) else value
    if not isinstance(found, Schedule):
        raise TypeError(value)
    return found


def _as_int(value: Any) -> int:
    number = value if isinstance(value, SupportsIndex) else float(value)
    if number != int(number):
        raise ValueError(value)
    return int(number)
