"""What looks at a training asks this to log its errors: none may reach the training."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Guarding(Protocol):
    """Logs exceptions instead of raising them, once each."""

    def doing(self, action: str) -> AbstractContextManager[None, bool]:
        """A context in which an exception is logged, once for each action, instead of raised."""

    def warn(self, text: str, key: str | None = None) -> None:
        """Log a warning, once for each key, which is the text itself if none is given."""
