"""Checks of the values that callers give; each message names the option, what was expected and what came."""

from __future__ import annotations

import math
import operator
from typing import Any

from normscope.errors import UsageError

LARGEST_SEED = 2**63 - 1  # of torch's generators


def check_integer(option: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """The value as an int: NumPy's integers and whole floats such as 1e5 count, text does not."""
    number = _as_int(value)
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        expected = _within("an integer", ("at least", least), ("at most", most))
        raise UsageError(f"{option} must be {expected}; got {value!r}")
    return number


def check_seed(seed: Any, option: str = "seed") -> int:
    """The seed as an int that every random number generator takes."""
    return check_integer(option, seed, 0, LARGEST_SEED)


def check_number(option: str, value: Any, least: float | None = None, below: float | None = None) -> float:
    """The value as a finite float."""
    number = math.nan if isinstance(value, str) else _as_float(value)
    low, high = -math.inf if least is None else least, math.inf if below is None else below
    if not math.isfinite(number) or not low <= number < high:
        expected = _within("a finite number", ("at least", least), ("below", below))
        raise UsageError(f"{option} must be {expected}; got {value!r}")
    return number


def check_positive(option: str, value: Any) -> float:
    """The value as a finite float above zero."""
    number = check_number(option, value)
    if number <= 0:
        raise UsageError(f"{option} must be more than 0; got {value!r}")
    return number


def check_kind(option: str, value: Any, kind: type | tuple[type, ...], expected: str = "") -> None:
    """Refuse a value of another kind; `expected` describes the kind in other words than its name."""
    if not isinstance(value, kind):
        name = "" if isinstance(kind, tuple) else kind.__name__
        came = f"the class {value.__name__}" if isinstance(value, type) else _short(value)
        raise UsageError(f"{option} must be {expected or f'a {name}'}; got {came}")


def check_progress(progress: Any) -> None:
    """Refuse a progress that cannot be called, before any work is done."""
    if not callable(progress):
        raise UsageError(
            f"progress must be a function of (done, total, note); got {progress!r}; "
            "leave it out to be told nothing"
        )


def _within(kind: str, *bounds: tuple[str, float | None]) -> str:
    """The kind with the bounds that are given: "an integer of at least 1"."""
    words = [f"{word} {bound}" for word, bound in bounds if bound is not None]
    return f"{kind} of {' and '.join(words)}" if words else kind


def _as_int(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        return None


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
