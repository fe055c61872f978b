"""Keep the monitor's own code out of compiled training loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def untraced(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, which Dynamo calls as it is: neither it nor what it calls is compiled."""
    found: Callable[..., Result] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return found


def never_compiled(function: Callable[..., object]) -> None:
    """Tell Dynamo to leave calls of this function alone, at no cost per call; not those that it makes."""
    from torch._dynamo.eval_frame import skip_code

    skip_code(function.__code__)
