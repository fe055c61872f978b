"""An alarm: what was seen, where, how bad it is, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WARNING, CRITICAL = "warning", "critical"


@dataclass(frozen=True)
class Alarm:
    """One warning: what was seen, where, and the numbers behind it.

    `severity` is "critical" if the training is probably lost unless somebody acts, otherwise "warning".

    >>> ns.Alarm(step=120, kind="nonfinite", where="values", message="NaN in h.0.mlp.weight").severity
    'warning'
    """

    step: int
    kind: str
    where: str
    message: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    severity: str = WARNING


@dataclass(frozen=True)
class Sign:
    """What a rule sees in one record. At level 1 it is an alarm; above 1/2 an alarm that was raised lasts."""

    kind: str
    where: str
    message: str
    evidence: Mapping[str, float]
    severity: str = WARNING
    level: float = 1.0
