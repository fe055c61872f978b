"""What a monitor records and where it shows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

from normscope.anatomy import SCOPES
from normscope.errors import UsageError
from normscope.live.alarms.alarms import Alarm
from normscope.option_checks import check_integer, check_kind, check_positive
from normscope.schedule import Schedule
from normscope.theory.measures.measures import GROUPINGS
from normscope.theory.measures.update_measures import LIVE_MEASURES

LoggedValues = Mapping[str, float]
"""Numbers by slash-separated key: normscope/norm/total, normscope/norm/layer/03."""
Logger = Callable[[LoggedValues, int], None]
"""Called with the values of a record and its step."""


@runtime_checkable
class Describes(Protocol):
    """A logger that is told, once, which parameters its values count."""

    def describe(self, scope: str) -> None:
        """Keep the scope where people see it: body, all, or all (no body)."""


@runtime_checkable
class Finishes(Protocol):
    """A logger that is told when the last values have been sent."""

    def finish(self) -> None:
        """Write what is left."""


NEEDED = {"update": "updates", "alignment": "updates", "gradient": "gradients"}
"""The option without which a measure is not recorded."""


@dataclass(frozen=True)
class MonitorOptions:
    """What a monitor records beside the norms, and where it shows it.

    >>> import normscope as ns
    >>> options = ns.MonitorOptions(updates=False, groups=("total", "layer"))
    >>> options.logged_measures
    ('norm', 'gradient')
    >>> ns.MonitorOptions(updates=False, measures=("norm", "update"))
    Traceback (most recent call last):
    normscope.errors.UsageError: the measure 'update' needs updates=True
    """

    updates: bool = True
    """Record ⟨θ′, Δ⟩ and ‖Δ‖² of each update; needs a copy of the parameters during recorded steps."""
    gradients: bool = True
    """Record ‖g‖² and ⟨θ′, g⟩ of the gradients before clipping."""
    alarms: bool = True
    """Warn when something looks wrong: once per problem, in the log and in the run file."""
    on_alarm: Callable[[Alarm], object] | None = None
    """A function of one Alarm, called on rank 0 in a thread of its own; what it raises is logged."""
    stage: str = ""
    """Name of the training stage, where one run file has several."""
    step: int = 0
    """Optimizer steps already made, for a run that continues from a checkpoint."""
    loggers: Sequence[Logger] = ()
    """Functions of (values, step) that get the measures of every record, and what is given to `log`."""
    measures: Sequence[str] | None = None
    """What loggers get: norm, update, alignment, gradient; by default all that are recorded."""
    groups: Sequence[str] = ("total",)
    """Groups that loggers get the measures of: total, layer, role, component, tensor."""
    scope: str = "body"
    """Parameters that loggers count: body or all. The run file always has every tensor."""
    initial: bool = True
    """Record ⟨θ₀, θ⟩; needs a copy of the parameters as they were at step 0, in the host's memory."""
    rank_timeout: float = 30.0
    """Seconds to wait at construction until every rank has created its monitor."""
    network: Schedule | None = None
    """Steps after which the whole network is measured on `batch`, such as ns.every(500)."""
    batch: Any = field(default=None, compare=False, repr=False)
    """What the model is called with at these steps: a tensor, a dict, a tuple or a `Batch`."""
    attention: Literal["observe"] | None = None
    """"observe": the attention of the training forward, at recorded steps, without an extra pass."""
    spectral: bool | Schedule = False
    """True: the spectral norm of every matrix at recorded steps; or at those of a schedule: ns.every(10)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check_integer("step", self.step, 0))
        check_kind("stage", self.stage, str, "a name")
        for option in ("updates", "gradients", "alarms", "initial"):
            check_kind(option, getattr(self, option), bool, "True or False")
        if self.on_alarm is not None and not (callable(self.on_alarm) and self.alarms):
            wanted = "alarms=True" if callable(self.on_alarm) else "a function of one Alarm"
            raise UsageError(f"on_alarm needs {wanted}; got {self.on_alarm!r} and alarms={self.alarms}")
        if self.scope not in SCOPES:
            raise UsageError(f"scope must be {' or '.join(SCOPES)}; got {self.scope!r}")
        _check("groups", self.groups, GROUPINGS)
        if self.measures is not None:
            _check("measures", self.measures, LIVE_MEASURES)
        for measure in self.measures or ():
            if not self._recorded(measure):
                raise UsageError(f"the measure {measure!r} needs {NEEDED[measure]}=True")
        _check_network(self.network, self.batch, self.attention)
        if not isinstance(self.spectral, bool | Schedule):
            expected = "spectral must be True, False or a schedule of steps, such as ns.every(10)"
            raise UsageError(f"{expected}; got {self.spectral!r}")
        object.__setattr__(self, "rank_timeout", check_positive("rank_timeout", self.rank_timeout))
        if not isinstance(self.loggers, Sequence):
            raise UsageError(f"loggers must be a list of functions of (values, step); got {self.loggers!r}")
        for logger in self.loggers:
            if not callable(logger):
                raise UsageError(
                    f"a logger must be a function of (values, step), such as those of "
                    f"normscope.integrations.loggers; got {logger!r}"
                )

    @property
    def logged_measures(self) -> tuple[str, ...]:
        """The measures that loggers get."""
        return tuple(filter(self._recorded, LIVE_MEASURES) if self.measures is None else self.measures)

    def _recorded(self, measure: str) -> bool:
        return measure not in NEEDED or bool(getattr(self, NEEDED[measure]))


class MonitorFields(TypedDict, total=False):
    """The fields of MonitorOptions, as keyword arguments of a monitor.

    >>> fields: ns.MonitorFields = {"updates": False, "groups": ("total", "layer")}
    >>> sorted(fields)
    ['groups', 'updates']
    """

    updates: bool
    gradients: bool
    alarms: bool
    on_alarm: Callable[[Alarm], object] | None
    stage: str
    step: int
    loggers: Sequence[Logger]
    measures: Sequence[str] | None
    groups: Sequence[str]
    scope: str
    initial: bool
    rank_timeout: float
    network: Schedule | None
    batch: Any
    attention: Literal["observe"] | None
    spectral: bool | Schedule


def with_fields(options: MonitorOptions, given: MonitorFields) -> MonitorOptions:
    """The options with some fields replaced."""
    check_kind("options", options, MonitorOptions)
    known = [field.name for field in fields(MonitorOptions)]
    for name in given:
        if name not in known:
            raise UsageError(f"Monitor has no option {name!r}; its options are {', '.join(known)}")
    return replace(options, **given)


def _check(option: str, given: Sequence[str], known: Collection[str]) -> None:
    if isinstance(given, str) or not given or not all(name in list(known) for name in given):
        raise UsageError(f"{option} must be a tuple of one or more of {', '.join(known)}; got {given!r}")


def _check_network(network: object, batch: object, attention: object) -> None:
    """Refuse a probe without a batch, and a batch that nothing would use."""
    if network is not None and not isinstance(network, Schedule):
        raise UsageError(f"network must be a schedule of steps, such as ns.every(500); got {network!r}")
    if network is not None and batch is None:
        raise UsageError("network needs a batch to run the model on: batch=…, what its forward takes")
    if batch is not None and network is None:
        raise UsageError(
            "batch is used only by a probe of the network: say when to measure, such as network=ns.every(500)"
        )
    if attention not in (None, "observe"):
        raise UsageError(f'attention must be "observe", or None to leave it out; got {attention!r}')
