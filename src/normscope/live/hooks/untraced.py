"""Keep the monitor's own code out of compiled training loops."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def untraced(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, which Dynamo calls as it is: neither it nor what it calls is compiled.

    Dynamo has two ways in. While it traces a caller, it leaves alone what bears the marks of
    `torch.compiler.disable`; when a call is made, it looks at the code. The wrapper of `disable` itself is
    not called: it would switch Dynamo off and on again at every step of every training.
    """
    marked: Callable[..., Result] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]

    def call(*arguments: Any) -> Result:
        return function(*arguments)

    if not _skip_with_calls(call.__code__):
        return marked
    call.__dict__.update(marked.__dict__)
    return call


def never_compiled(function: Callable[..., object]) -> None:
    """Tell Dynamo to leave calls of this function alone, at no cost per call; not those that it makes."""
    from torch._dynamo.eval_frame import skip_code

    skip_code(function.__code__)


def _skip_with_calls(code: CodeType) -> bool:
    """Tell Dynamo to skip this code and all that it calls; return whether this torch can be told."""
    try:
        from torch._C._dynamo.eval_frame import _FrameAction as Action
        from torch._C._dynamo.eval_frame import _FrameExecStrategy as Strategy
        from torch._C._dynamo.eval_frame import set_code_exec_strategy

        set_code_exec_strategy(code, Strategy(Action.SKIP, Action.SKIP))
    except (ImportError, AttributeError, TypeError):  # an older torch
        return False
    return True
