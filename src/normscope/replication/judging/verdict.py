"""From measured numbers to a verdict, by the rules of a claim and by nothing else.

Rules are tried in order; the first one whose conditions all hold decides. If it cannot be said whether a
rule holds, because a number was not measured or its interval is not known, no later rule is tried: the
claim is not testable with these results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normscope.replication.judging.condition import Condition, Measured
from normscope.words import joined

CONFIRMED = "confirmed"
IN_PART = "confirmed in part"
NOT_REPRODUCED = "not reproduced"
ARTEFACT = "artefact"
NOT_TESTABLE = "not testable at this scale"
VERDICTS = (CONFIRMED, IN_PART, NOT_REPRODUCED, ARTEFACT, NOT_TESTABLE)


@dataclass(frozen=True)
class Rule:
    """A verdict, the conditions under which it is given (all must hold), and what it says."""

    verdict: str
    conditions: tuple[Condition, ...]
    because: str


@dataclass(frozen=True)
class Decision:
    """The verdict, why it was given, and for each earlier rule the conditions that did not hold."""

    verdict: str
    because: str
    missed: tuple[tuple[Rule, tuple[Condition, ...]], ...] = ()


def decide(rules: Sequence[Rule], measured: Measured) -> Decision:
    """Return the verdict of the first rule that holds; a rule without conditions always does."""
    missed: list[tuple[Rule, tuple[Condition, ...]]] = []
    for rule in rules:
        results = [(condition, condition.holds(measured)) for condition in rule.conditions]
        if all(result for _, result in results):
            return Decision(rule.verdict, rule.because, tuple(missed))
        failed = tuple(condition for condition, result in results if result is False)
        if not failed:
            unknown = [condition for condition, result in results if result is None]
            return Decision(NOT_TESTABLE, _missing(unknown, measured))
        missed.append((rule, failed))
    return Decision(NOT_TESTABLE, "No rule of this claim fits what was measured.")


def _missing(conditions: Sequence[Condition], measured: Measured) -> str:
    names = []
    for condition in conditions:
        for side in condition.references:
            if side.value(measured) is None:
                estimate = measured.get(side.column or "", {}).get(side.name)
                known = estimate is not None and estimate.value is not None
                names.append(
                    f"{side.column}.{side.name} has no interval (more seeds are needed)"
                    if known
                    else f"{side.column}.{side.name} was not measured"
                )
    return f"The rule cannot be applied: {joined(dict.fromkeys(names))}."
