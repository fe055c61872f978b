"""JSON documents that may come from anybody: decoded within limits, and compared with what they should be.

A shape is a type, a tuple of shapes one of which must fit, `[shape]` for a list, `{"name": shape}` for an
object that has these fields and perhaps others (`"name?"` may be missing or null), or `Each` for an object
whose values are all alike.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

LARGEST = 2**63
"""Integers beyond this fit into no column, and not into float64 either if they are much larger."""
NUMBER = (int, float)
MAYBE = (int, float, None)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STEP = re.compile(r"(?:.*/)?-?[0-9]{1,18}", re.DOTALL)


@dataclass(frozen=True)
class Each:
    """An object with values of one shape; with `steps`, its keys end with a step."""

    shape: Any
    steps: bool = False


class Rectangle:
    """Rows of numbers, all of one length; null for what is not finite."""


class Inside:
    """The path of a file within the folder of its document."""


def decode(text: str | bytes, shape: Any = object) -> Any:
    """The value of a JSON text; ValueError, in a few words, if it is not JSON or has another shape."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON (character {error.pos})") from None
    except ValueError:  # an integer of more than 4,300 digits
        raise ValueError("it has a number that is too large") from None
    if isinstance(text, bytes) or _SURROGATE.search(text):
        _check_unicode(value)
    if not fits(value, shape):
        raise ValueError("it does not have the expected fields")
    return value


def _check_unicode(value: object) -> None:
    """Refuse halves of surrogate pairs, which no file and no terminal can show."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise ValueError("it has text that is not valid Unicode") from None


def fits(value: object, shape: Any) -> bool:
    """Whether a decoded value has a shape."""
    if isinstance(shape, tuple):
        return any(fits(value, each) for each in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    if isinstance(shape, Each):
        return isinstance(value, dict) and all(
            fits(each, shape.shape) and (not shape.steps or _STEP.fullmatch(key) is not None)
            for key, each in value.items()
        )
    if isinstance(shape, Mapping):
        return isinstance(value, dict) and all(_has(value, name, each) for name, each in shape.items())
    return _is(value, shape)


def _has(value: Mapping[str, object], name: str, shape: Any) -> bool:
    if name.endswith("?"):
        return value.get(name[:-1]) is None or fits(value[name[:-1]], shape)
    return name in value and fits(value[name], shape)


def _is(value: object, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind is Rectangle:
        return fits(value, [[MAYBE]]) and isinstance(value, list) and len({len(row) for row in value}) == 1
    if kind is Inside:
        return isinstance(value, str) and _is_inside(value)
    if isinstance(value, bool):
        return kind in (bool, object)
    if kind is int:
        return isinstance(value, int) and abs(value) < LARGEST
    if kind is float:
        return isinstance(value, float) and not math.isinf(value)
    return isinstance(value, kind)


def _is_inside(path: str) -> bool:
    place = PurePosixPath(path)
    return bool(path) and not place.is_absolute() and not {"..", "\0"} & {*place.parts, *path}
