"""Let workers import what the caller of a sweep can import."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WithCallerPath:
    """A function to call in any process, with the folders in which the caller's Python looks for modules."""

    function: Callable[..., Any]
    folders: tuple[str, ...] = field(default_factory=lambda: tuple(map(os.path.abspath, [*sys.path, ""])))
    process: int = field(default_factory=os.getpid)

    def __call__(self, *args: Any) -> Any:
        """Call the function with the caller's modules at hand."""
        if os.getpid() != self.process:
            sys.path.extend(folder for folder in self.folders if folder not in sys.path)
        return self.function(*args)
