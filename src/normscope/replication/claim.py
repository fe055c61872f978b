"""A claim: what a paper says, the experiments that test it, its numbers, and the rules of its verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from normscope.errors import UsageError
from normscope.replication.judging.condition import COLUMNS, parse_condition
from normscope.replication.judging.quantities import QUANTITIES, option_problem
from normscope.replication.judging.verdict import VERDICTS, Rule

NAME = re.compile(r"^[a-z][a-z0-9_]*$")
ID = re.compile(r"^[a-z][a-z0-9-]*$")
KINDS = ("claim", "question")


@dataclass(frozen=True)
class Column:
    """How one column is measured: the experiment, which of its trials, and what to know about it."""

    experiment: str
    where: Mapping[str, Any] = field(default_factory=dict, hash=False)
    note: str = ""


@dataclass(frozen=True)
class Number:
    """One number of a claim.

    `quantity` names the function that computes it, with `options`, from the trials that match `where`;
    `minus` subtracts the same quantity of other trials, seed by seed. `paper` is the published value;
    `bounds` are the values that the number can have, if the quantity does not say. The `headline` number is
    shown in the table of all claims.
    """

    name: str
    label: str
    quantity: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    where: Mapping[str, Any] = field(default_factory=dict, hash=False)
    minus: Mapping[str, Any] | None = field(default=None, hash=False)
    paper: float | None = None
    headline: bool = False
    columns: tuple[str, ...] = COLUMNS[1:]
    bounds: tuple[float, float] | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """The bounds of the number: its own, or those of its quantity."""
        return self.bounds or QUANTITIES[self.quantity].bounds


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, or a question that it left open, as its file says it."""

    id: str
    order: int
    kind: str
    paper: str
    title: str
    statement: str
    place: str
    audit: str
    columns: Mapping[str, Column] = field(hash=False)
    numbers: tuple[Number, ...]
    rules: tuple[Rule, ...]
    figure: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def experiments(self) -> list[str]:
        """The experiments that the claim needs, each once."""
        return list(dict.fromkeys(column.experiment for column in self.columns.values()))


def parse_claim(document: Mapping[str, Any], source: str) -> Claim:
    """Check and convert a claim's TOML document; an error names the file and the entry."""
    try:
        claim = _claim(document)
    except KeyError as error:
        raise UsageError(f"{source} lacks the entry {error.args[0]!r}") from None
    except (TypeError, UsageError) as error:
        raise UsageError(f"{source}: {error}") from None
    _check(claim, source)
    return claim


def _claim(document: Mapping[str, Any]) -> Claim:
    unknown = set(document) - {
        *("id", "order", "kind", "paper", "title", "statement", "place", "audit", "figure"),
        *("released", "corrected", "numbers", "verdicts"),
    }
    if unknown:
        raise UsageError(f"unknown entries {sorted(unknown)}")
    columns = {name: Column(**document[name]) for name in COLUMNS[1:] if name in document}
    return Claim(
        id=document["id"],
        order=document["order"],
        kind=document.get("kind", KINDS[0]),
        paper=document["paper"],
        title=document["title"],
        statement=document["statement"],
        place=document["place"],
        audit=document.get("audit", ""),
        columns=columns,
        numbers=tuple(_number(entry) for entry in document["numbers"]),
        rules=tuple(_rule(entry) for entry in document["verdicts"]),
        figure=document.get("figure", {}),
    )


def _number(entry: Mapping[str, Any]) -> Number:
    bounds = tuple(entry["bounds"]) if "bounds" in entry else None
    return Number(**{**entry, "columns": tuple(entry.get("columns", COLUMNS[1:])), "bounds": bounds})


def _rule(entry: Mapping[str, Any]) -> Rule:
    conditions = tuple(map(parse_condition, entry.get("when", ())))
    return Rule(entry["verdict"], conditions, entry["because"])


def _check(claim: Claim, source: str) -> None:
    names = [number.name for number in claim.numbers]
    problems = [
        *(
            [f"id {claim.id!r} must be lower-case letters, digits and dashes"]
            if not ID.match(claim.id)
            else []
        ),
        *([f"kind must be one of {', '.join(KINDS)}"] if claim.kind not in KINDS else []),
        *([] if claim.columns else ["there is neither [released] nor [corrected]"]),
        *([f"a number is named twice in {names}"] if len(set(names)) < len(names) else []),
        *(f"{name!r} is not a name" for name in names if not NAME.match(name)),
        *(f"unknown quantity {n.quantity!r}" for n in claim.numbers if n.quantity not in QUANTITIES),
        *(f"{n.name} is of an unknown column" for n in claim.numbers if not set(n.columns) <= set(COLUMNS)),
        *(f"unknown verdict {rule.verdict!r}" for rule in claim.rules if rule.verdict not in VERDICTS),
        *(_unknown_references(claim.rules, names)),
    ]
    known = [number for number in claim.numbers if number.quantity in QUANTITIES]
    problems += filter(None, (option_problem(number.quantity, number.options) for number in known))
    if not claim.rules or claim.rules[-1].conditions:
        problems.append("the last verdict must have no conditions, so that there is always a verdict")
    if sum(number.headline for number in claim.numbers) != 1:
        problems.append("exactly one number must be the headline")
    if problems:
        raise UsageError(f"{source}: {problems[0]}")


def _unknown_references(rules: Sequence[Rule], names: Sequence[str]) -> list[str]:
    return [
        f"the condition {condition.text!r} refers to {side.name!r}, which is not among the numbers"
        for rule in rules
        for condition in rule.conditions
        for side in condition.references
        if side.name not in names
    ]
