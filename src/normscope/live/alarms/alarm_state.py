"""Which alarms are active: raised once, over after enough calm records, then free to be raised again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from normscope.live.alarms.alarms import Alarm, Sign
from normscope.words import some

CALM = 16
"""Records without a sign after which a trouble is over; twice as many after each time it comes back."""
LONGEST_CALM = 1024
LASTS = 0.5
"""The level down to which a trouble that was raised is not over."""

Key = tuple[str, str]


class AlarmState:
    """Turns signs into alarms: one when a trouble begins, none while it lasts."""

    def __init__(self) -> None:
        self._calm: dict[Key, int] = {}  # active alarms, and how many records each has been calm for
        self._times: dict[Key, int] = {}
        self._raised: dict[str, int] = {}  # kinds, and how many records ago an alarm of each was raised

    def active(self, kind: str) -> bool:
        """Whether an alarm of this kind was raised and is not over."""
        return any(key[0] == kind for key in self._calm)

    def update(self, step: int, signs: Sequence[Sign], kinds: Collection[str]) -> list[Alarm]:
        """The alarms that begin with these signs; `kinds` are those that were looked for."""
        for kind in self._raised:
            self._raised[kind] += kind in kinds
        if not signs and not self._calm:  # most records end here
            return []
        lasting = {(sign.kind, sign.where) for sign in signs if sign.level >= LASTS}
        for key in [key for key in self._calm if key[0] in kinds]:
            self._calm[key] = 0 if key in lasting else self._calm[key] + 1
            if self._calm[key] >= min(LONGEST_CALM, CALM << (self._times[key] - 1)):
                del self._calm[key]
        new: dict[str, list[Sign]] = {}
        for sign in signs:
            key = (sign.kind, sign.where)
            if sign.level >= 1 and key not in self._calm:
                self._calm[key] = 0
                self._times[key] = self._times.get(key, 0) + 1
                if self._raised.get(sign.kind, CALM) >= CALM:  # later places are the same trouble
                    new.setdefault(sign.kind, []).append(sign)
        self._raised.update(dict.fromkeys(new, 0))
        return [_together(step, signs) for signs in new.values()]


def _together(step: int, signs: Sequence[Sign]) -> Alarm:
    """One alarm for what begins in several places at once."""
    first, others = signs[0], [sign.where for sign in signs[1:]]
    message = first.message + (f"; likewise {some(others)}" if others else "")
    return Alarm(step, first.kind, first.where, message, first.evidence, first.severity)
