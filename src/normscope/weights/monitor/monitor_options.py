"""What a monitor records and where it shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from normscope.errors import UsageError
from normscope.weights.monitor.live_measures import MEASURES

Logger = Callable[[Mapping[str, float], int], None]
"""Where totals go as well: called with (values by slash-separated key, step)."""


@dataclass(frozen=True)
class MonitorOptions:
    """What a monitor records beside the norms, and where it shows it."""

    updates: bool = True
    """⟨θ′, Δ⟩ and ‖Δ‖² across the step; takes a copy of the parameters during scheduled steps."""
    gradients: bool = True
    alarms: bool = True
    stage: str = ""
    step: int = 0
    """Optimizer steps already made: a run resumed from a checkpoint."""
    loggers: Sequence[Logger] = ()
    measures: Sequence[str] = tuple(MEASURES)
    groups: Sequence[str] = ("total",)
    scope: str = "body"
    """What loggers and alarms look at; the run file always has every tensor."""

    def __post_init__(self) -> None:
        for measure in self.measures:
            if measure not in MEASURES:
                raise UsageError(f"no live measure is called {measure!r}: known are {', '.join(MEASURES)}")
