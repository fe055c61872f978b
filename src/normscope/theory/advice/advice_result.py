"""Advice: a sentence with its numbers, its confidence and the command that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from normscope.errors import UsageError
from normscope.remarks import Finding
from normscope.table import Table
from normscope.theory.measures.result_sequence import ResultSequence

Severity = Literal["act", "watch", "fine"]
SEVERITIES: tuple[Severity, ...] = ("act", "watch", "fine")


@dataclass(frozen=True)
class Advice:
    """One piece of advice: `sentence` for people, `evidence` with the same numbers for programs.

    `confidence`, from 0 to 1, is computed from intervals, p-values or scatter, as docs/advice.md says for
    each `kind`. `command` shows the numbers. `severity` is "act" (change something), "watch" (nothing is
    lost yet) or "fine". `size` orders advice of equal severity: the larger one comes first.

    >>> ns.Advice("layer", "Layer 02 departs.", {"p_value": 0.01}, 0.99, "normscope fit run.db").severity
    'watch'
    """

    kind: str
    sentence: str
    evidence: Mapping[str, float | str] = field(hash=False)
    confidence: float
    command: str
    severity: Severity = "watch"
    size: float = field(default=0.0, repr=False, compare=False)

    @property
    def certainty(self) -> str:
        """The confidence for people: 1 only where something was counted."""
        return "> 0.99" if 0.995 <= self.confidence < 1 else f"{self.confidence:.2f}"

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise UsageError(f"severity must be act, watch or fine; got {self.severity!r}")
        if not 0 <= self.confidence <= 1:
            raise UsageError(f"confidence must be from 0 to 1; got {self.confidence!r}")
        if not self.evidence:
            raise UsageError(f"advice without evidence: {self.sentence!r}")


@dataclass(frozen=True)
class Judgement:
    """What one rule found: its `advice`, what it `checked` (a clause with a number), what is `unknown`.

    `doubt` is how probable its condition is where it gave no advice. A rule whose data are `missing` could
    not judge; `unknown` says so in a sentence, unless another rule says it. All empty: it does not apply.
    """

    advice: tuple[Advice, ...] = ()
    checked: str = ""
    doubt: float = 0.0
    missing: bool = False
    unknown: str = ""


@dataclass(frozen=True, repr=False)
class AdviceList(ResultSequence[Advice]):
    """All advice about one run, the most urgent first; a sequence of `Advice`, never empty.

    `unknown` is what could not be judged, and what would have to be recorded for it. `last_step` is the
    last step that the advice knows; `scope` and `findings` are as in `GrowthFit`.

    >>> found = ns.advise("t5-base")
    >>> found[0].severity, found[0].kind
    ('fine', 'nothing')
    """

    source: str
    last_step: int
    advice: tuple[Advice, ...]
    unknown: tuple[str, ...]
    scope: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def parts(self) -> tuple[Advice, ...]:
        """The advice."""
        return self.advice

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences, the most urgent first."""
        return tuple(each.sentence for each in self.advice)

    @property
    def messages(self) -> tuple[str, ...]:
        """The sentences, then what could not be judged."""
        return (*self.sentences, *self.unknown)

    @property
    def table(self) -> Table:
        """One row per advice: severity, kind, sentence, confidence, command."""
        names = ("severity", "kind", "sentence", "confidence", "command")
        return Table.from_rows(names, [[getattr(each, name) for name in names] for each in self.advice])
