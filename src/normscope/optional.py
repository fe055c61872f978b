"""Optional packages, imported when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from normscope.errors import MissingExtra


def require(package: str, extra: str, purpose: str) -> Any:
    """Import an optional package; if it is missing, MissingExtra names the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtra(package, extra, purpose) from None
