"""Where records go beside the run file: loggers and the user's function for alarms, each with a queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from normscope.live.alarms.alarms import Alarm
from normscope.live.monitor_options import Describes, Finishes, LoggedValues, Logger
from normscope.live.writing.outbox import Outbox

log = logging.getLogger("normscope")


@dataclass(frozen=True)
class Logged:
    """Values of one step for loggers, made in the thread of the first logger that sends them."""

    step: int
    make: Callable[[], LoggedValues]

    @cached_property
    def values(self) -> LoggedValues:
        """Numbers by slash-separated key."""
        return self.make()


def logger_outbox(logger: Logger, scope: str) -> Outbox[Logged | None]:
    """The queue of a logger: values with their step, and None after the last."""
    name = getattr(logger, "name", type(logger).__name__)
    to_describe: list[Callable[[str], None]] = [logger.describe] if isinstance(logger, Describes) else []

    def deliver(items: Sequence[Logged | None]) -> None:
        while to_describe:  # once, in the thread that delivers
            _describe(to_describe.pop(), scope, name)
        for item in items:
            if item is not None:
                logger(item.values, item.step)
            elif isinstance(logger, Finishes):
                logger.finish()

    return Outbox(deliver, name, batch=1)


def alarm_outbox(tell: Callable[[Alarm], object]) -> Outbox[Alarm]:
    """Calls the function in a thread of its own, once per alarm, whether it fails or not."""

    def deliver(alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            try:
                tell(alarm)
            except Exception as error:  # a user's function may raise anything
                log.warning(
                    "normscope: on_alarm failed for the alarm of step %d, which is in the run file: %s: %s",
                    alarm.step, type(error).__name__, error,
                )  # fmt: skip

    return Outbox(deliver, "on_alarm", batch=1)


def _describe(describe: Callable[[str], None], scope: str, name: str) -> None:
    """Tell a tracker which parameters are counted; the values go to it even if it cannot keep that."""
    try:
        describe(scope)
    except Exception as error:  # a tracker may raise anything
        log.warning("normscope: %s does not keep which parameters are counted: %s", name, error)
