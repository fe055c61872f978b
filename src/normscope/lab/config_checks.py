"""Checks that the configs of the lab share; each names the field, what was expected and what came."""

from __future__ import annotations

from typing import Any, get_args

from normscope.errors import UsageError


def check_choices(config: object, **choices: Any) -> None:
    """Refuse a field whose value is not in its Literal type."""
    for name, literal in choices.items():
        value, allowed = getattr(config, name), get_args(literal)
        if value not in allowed:
            raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def check_at_least(config: object, **bounds: float) -> None:
    """Refuse a field that is below its bound, or NaN."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if not value >= bound:  # NaN is not
            raise UsageError(f"{name} must be at least {bound}, not {value}")
