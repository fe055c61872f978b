"""A forecast: the value, its interval, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field

from normscope.remarks import Finding
from normscope.table import Table, Tabular
from normscope.theory.dynamics.dynamics import Equilibrium
from normscope.theory.forecasts.group_outlook import GroupOutlook
from normscope.theory.forecasts.threshold import ThresholdCrossing
from normscope.theory.measures.time_series import Series


@dataclass(frozen=True, repr=False)
class Forecast(Tabular):
    """The norm at a later step with a 95 % interval, and how it was found.

    `method` is what most of it comes from: dynamics (the norm recursion of every parameter group), trend,
    laws or last value. `weights` are the candidates' shares, `trust` how far they are believed against the
    last value (0 to 1), `backtest` the mean error of the forecast and of the last value inside the known
    part. `naive` is what the last value and a·√t + b give. `laws` are the growth laws, each starting at the
    last value, and `by_law` their median, lowest and highest. `past` are the points that the forecast rests
    on, `curve` is the table of later steps, `groups` the parameter groups if their rates are known. `drive`
    is what the gradients add to ρ² per η² and step in the largest group; `equilibrium` is where that
    balances weight decay, `angle_one_step` the angle between the parameters before and after one step there.
    `scope` and `findings` are as in `GrowthFit`. `crossing` says when a threshold is passed.

    >>> import normscope as ns
    >>> ahead = ns.forecast("t5-base", 600_000)
    >>> ahead.method, {name: round(value) for name, value in ahead.naive.items()}
    ('trend', {'last': 4166, 'sqrt': 4385})
    >>> ahead.low < 4450 < ahead.high
    True
    """

    series: str
    now: int
    value_now: float
    to: int
    value: float
    low: float
    high: float
    method: str
    naive: dict[str, float] = field(hash=False)
    weights: dict[str, float] = field(hash=False)
    trust: float
    backtest: dict[str, float] = field(hash=False)
    laws: dict[str, float] = field(hash=False)
    by_law: tuple[float, float, float]
    equilibrium: Equilibrium | None
    angle_one_step: float | None
    drive: float | None
    groups: tuple[GroupOutlook, ...]
    curve: Table
    past: Series = field(repr=False, compare=False)
    scope: str = ""
    findings: tuple[Finding, ...] = ()
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    crossing: ThresholdCrossing | None = None

    @property
    def table(self) -> Table:
        """The forecast curve: step, value, low, high."""
        return self.curve

    @property
    def tells(self) -> bool:
        """Whether the interval is narrower than the value itself; a wider one names no value."""
        return self.high - self.low < abs(self.value) or self.value == 0

    @property
    def messages(self) -> tuple[str, ...]:
        """The sentences, then the notes."""
        return (*self.sentences, *self.notes)
