"""What would have changed a verdict, in words and with the numbers that decided it."""

from __future__ import annotations

from collections.abc import Mapping

from normscope.replication.judging.condition import Condition, Measured, Side
from normscope.replication.judging.verdict import NOT_TESTABLE, Decision
from normscope.words import joined

ENDS = {"value": "", "low": "the lower end of ", "high": "the upper end of "}
RELATIONS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def would_change(decision: Decision, labels: Mapping[str, str], measured: Measured) -> tuple[str, ...]:
    """Return a sentence for each other verdict that an earlier rule would have given.

    A rule that needs all that one before it needs is left out: the one before it would decide.
    """
    needed = [{condition.text for condition in failed} for _, failed in decision.missed]
    return tuple(
        f"It would be “{rule.verdict}” if {joined(_wanted(c, labels, measured) for c in failed)}."
        for place, (rule, failed) in enumerate(decision.missed)
        if rule.verdict not in (decision.verdict, NOT_TESTABLE)
        and not any(before <= needed[place] for before in needed[:place])
    )


def _wanted(condition: Condition, labels: Mapping[str, str], measured: Measured) -> str:
    left, right = condition.left, condition.right
    relation = RELATIONS[condition.comparison]
    value = left.value(measured)
    is_now = "" if left.column is None or value is None else f" (it is {_short(value)})"
    return f"{_named(left, labels)} were {relation} {_named(right, labels)}{is_now}"


def _short(value: float) -> str:
    return f"{value:.4g}".replace("-", "−", 1)


def _named(side: Side, labels: Mapping[str, str]) -> str:
    if side.column is None:
        return _short(side.added)
    added = f" {'+' if side.added > 0 else '−'} {abs(side.added):g}" if side.added else ""
    column = " as released" if side.column == "released" else ""
    return f"{ENDS[side.end]}“{labels[side.name]}”{column}{added}"
