"""Verdicts are functions of numbers: every outcome of every claim can be reached."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from normscope.errors import UsageError
from normscope.replication.claim_files import known_claims
from normscope.replication.judging.condition import parse_condition
from normscope.replication.judging.seed_interval import Estimate
from normscope.replication.judging.verdict import NOT_TESTABLE, VERDICTS, Rule, decide
from normscope.replication.judging.verdict_wording import would_change

CLAIMS = list(known_claims().values())


def rule(verdict, *conditions):
    return Rule(verdict, tuple(map(parse_condition, conditions)), "because")


def measured(**numbers):
    return {"corrected": {name: Estimate(*values) for name, values in numbers.items()}}


RULES = (
    rule("confirmed", "corrected.x.low >= 0.9"),
    rule("confirmed in part", "corrected.x.low > 0", "corrected.y <= corrected.x + 0.5"),
    rule("not reproduced"),
)


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"x": (0.95, 0.9, 1.0), "y": (9.0, 9.0, 9.0)}, "confirmed"),
        ({"x": (0.95, 0.89, 1.0), "y": (1.0, 1.0, 1.0)}, "confirmed in part"),
        ({"x": (0.95, 0.89, 1.0), "y": (2.0, 2.0, 2.0)}, "not reproduced"),
        ({"x": (0.5, -0.1, 1.1), "y": (0.0, 0.0, 0.0)}, "not reproduced"),
        ({"x": (0.95, None, None), "y": (0.0, 0.0, 0.0)}, NOT_TESTABLE),
        ({"x": (0.5, 0.4, 0.6)}, NOT_TESTABLE),
        ({}, NOT_TESTABLE),
    ],
)
def test_first_rule_that_holds(numbers, verdict):
    assert decide(RULES, measured(**numbers)).verdict == verdict


def test_an_unknown_number_stops_before_a_weaker_rule():
    """A wide interval must not pass as "confirmed in part" because "confirmed" could not be judged."""
    found = decide(RULES, measured(x=(0.95, None, None), y=(0.0, 0.0, 0.0)))
    assert "no interval" in found.because
    assert "corrected.x" in found.because


def test_says_what_would_change_it():
    numbers = measured(x=(0.5, 0.4, 0.6), y=(0.0, 0.0, 0.0))
    found = decide(RULES, numbers)
    (sentence,) = would_change(found, {"x": "the x"}, numbers)
    assert sentence == "It would be “confirmed” if the lower end of “the x” were at least 0.9 (it is 0.4)."


def test_does_not_name_a_rule_that_could_not_decide():
    """“It would be confirmed if x were 0.9”, and also “not testable if x were 0.9”: one of them is false."""
    rules = (
        rule("confirmed", "corrected.x.low >= 0.9", "corrected.y >= 0.9"),
        rule(NOT_TESTABLE, "corrected.x.low >= 0.9"),
        rule("confirmed in part", "corrected.x.low >= 0.9", "corrected.y >= 0"),
        rule("not reproduced"),
    )
    numbers = measured(x=(0.5, 0.4, 0.6), y=(1.0, 1.0, 1.0))
    (sentence,) = would_change(decide(rules, numbers), {"x": "the x"}, numbers)
    assert sentence.startswith("It would be “confirmed” if")


@pytest.mark.parametrize(
    "text",
    [
        "corrected.x",
        "x > 1",
        "corrected.x.middle > 1",
        "corrected.x == 1",
        "other.x > 1",
        "corrected.x > one",
        "> 1",
    ],
)
def test_a_condition_that_is_not_understood(text):
    with pytest.raises(UsageError, match="condition|neither"):
        parse_condition(text)


@pytest.mark.parametrize(
    "text", ["corrected.x.low >= -0.5", "released.a_1 < corrected.b.high - 1e-3", "1 > paper.x"]
)
def test_a_condition_holds_or_not(text):
    condition = parse_condition(text)
    numbers = {"x": Estimate(0.0, -0.5, 0.5), "a_1": Estimate(1.0), "b": Estimate(1.0, 0.9, 1.1)}
    assert condition.holds({"corrected": numbers, "released": numbers, "paper": numbers}) is True
    assert condition.holds({}) is None


def _candidates(claim):
    """For each number and column, estimates around every threshold that a condition mentions."""
    thresholds = {0.0, 1.0}
    references = set()
    for one in claim.rules:
        for condition in one.conditions:
            for side in (condition.left, condition.right):
                if side.column is None:
                    thresholds.add(side.added)
                else:
                    references.add((side.column, side.name))
    values = sorted({t + d for t in thresholds for d in (-0.03, -1e-3, 0.0, 1e-3, 0.03)})
    return sorted(references), values


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_outcome_of_a_claim_can_be_reached(claim):
    """Numbers made up for it lead to each rule's verdict, with the rule's own sentence."""
    references, values = _candidates(claim)
    rng = np.random.default_rng(0)
    reached = set()
    for _ in range(60_000):
        if len(reached) == len(claim.rules):
            break
        numbers: dict[str, dict[str, Estimate]] = {"paper": {}, "released": {}, "corrected": {}}
        for column, name in references:
            low, value, high = sorted(rng.choice(values, 3))
            if rng.random() < 0.5:
                low = value = high = rng.choice(values)
            numbers[column][name] = Estimate(float(value), float(low), float(high), 3)
        found = decide(claim.rules, numbers)
        reached |= {i for i, one in enumerate(claim.rules) if found.because == one.because}
    assert reached == set(range(len(claim.rules)))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_nothing_measured_is_not_testable(claim):
    assert decide(claim.rules, {}).verdict == NOT_TESTABLE


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_sentences_mention_only_numbers_that_exist(claim):
    import re

    known = {(column, number.name) for number in claim.numbers for column in number.columns}
    known = {pair for pair in known if pair[0] in claim.columns}
    for one in claim.rules:
        assert set(re.findall(r"\{([a-z]+)\.([a-z0-9_]+)(?::%)?\}", one.because)) <= known
        for condition in one.conditions:
            assert {(side.column, side.name) for side in condition.references} <= known


def test_verdicts_are_those_that_are_documented():
    used = {one.verdict for claim in CLAIMS for one in claim.rules}
    assert used <= set(VERDICTS)
    assert len(set(itertools.chain(used, VERDICTS))) == 5


UNSURE = {  # numbers whose intervals leave the question open, and a verdict that they must not give
    "saturation": {"converged": (1, 1, 1), "last": (0.97, 0.9, 1.0), "rise": (0.5, -0.1, 1.1)},
    "pretrained": {"trained": (0.92, 0.8, 1.0), "random": (0.3, 0.1, 0.5), "gap": (0.6, -0.1, 1.3)},
    "heads": {"mean": (0.3, 0.0, 0.6), "argmax": (0.5, 0.3, 0.7)},
    "homogeneity": {"degree": (1.0, 0.8, 1.2), "own": (1.0, 0.8, 1.2), "cosine_1": (1, 1, 1)},
    "rate-and-decay": {"grown": (0.7, 0.4, 1.0), "threshold": (0.01, 0.0, 0.02)},
    "counting": {"soft": (1, 1, 1), "saturated": (0.85, 0.7, 1.0), "best": (0.95, 0.85, 1.0)},
    "growth-and-saturation": {
        **{"early": (0.3, -0.4, 1.0), "start": (0.1, 0.1, 0.1), "free_early": (0.9, 0.8, 1.0)},
        "free_end": (0.5, 0.4, 0.6),
    },
    "saturation-and-norm": {"correlation": (0.2, -0.6, 1.0)},
    "saturated-task": {"perfect": (1, 1, 1), "saturated": (0.5, 0.3, 0.7), "best": (0.7, 0.5, 0.9)},
    "mean-heads": {
        **{"rotary_accuracy": (0.95, 0.9, 1.0), "rotary_mean": (0.1, 0.0, 0.3)},
        **{"rotary_argmax": (0.9, 0.8, 1.0), "none_mean": (0.5, 0.4, 0.6)},
    },
    "automaton": {
        "accuracy": (1, 1, 1),
        "saturated": (2.7, 1, 4),
        "soft": (3, 3, 3),
        "saturated_right": (1, 1, 1),
    },
}


@pytest.mark.parametrize("name", UNSURE)
def test_a_wide_interval_decides_nothing(name):
    """Neither for the claim nor against it: "not reproduced" is a finding, and needs numbers that show it."""
    numbers = {number: Estimate(*values, 3) for number, values in UNSURE[name].items()}
    found = decide(known_claims()[name].rules, {"corrected": numbers, "released": numbers})
    assert found.verdict == NOT_TESTABLE
    assert "was not measured" not in found.because


@pytest.mark.parametrize(
    ("name", "numbers", "verdict"),
    [
        # the slope of a normed encoder is 1 even where its direction turns
        ("homogeneity", {"degree": 1.0, "own": 1.0, "cosine_1": 0.8}, "confirmed in part"),
        # growth that ends far below the published threshold is not what was published
        ("rate-and-decay", {"grown": 0.7, "threshold": 1e-5}, "confirmed in part"),
        # a cosine near 1 with a network that is not at its limit
        ("saturation", {"converged": 0.6, "last": 0.999, "rise": 0.5}, NOT_TESTABLE),
        # all models grow as they should have been trained
        ("growth", {"grown": 1.0, "released.grown": 0.5}, "confirmed"),
        # saturation that does not fall again, and one that never rose
        (
            "growth-and-saturation",
            {"early": 0.0, "start": 0.1, "free_early": 0.8, "free_end": 0.9},
            "confirmed in part",
        ),
        (
            "growth-and-saturation",
            {"early": 0.0, "start": 0.8, "free_early": 0.8, "free_end": 0.5},
            "not reproduced",
        ),
        # mean heads under the leaking mask that are not ties over the future
        (
            "heads",
            {"mean": 0.0, "argmax": 1.0, "released.mean": 0.4, "released.largest": 0.5},
            "not reproduced",
        ),
        # a clear relation, even if it is weak
        ("saturation-and-norm", {"correlation": 0.25}, "confirmed in part"),
        # a network that keeps most of the words
        ("saturated-task", {"perfect": 1.0, "saturated": 0.8, "best": 0.9}, "not reproduced"),
        # no mean heads in networks that do not count
        (
            "mean-heads",
            {"rotary_accuracy": 0.4, "rotary_mean": 0.0, "rotary_argmax": 1.0, "none_mean": 0.5},
            NOT_TESTABLE,
        ),
    ],
)
def test_numbers_that_say_less_than_the_claim(name, numbers, verdict):
    columns = {"corrected": {}, "released": {}}
    for place, value in numbers.items():
        column, _, number = place.rpartition(".")
        columns[column or "corrected"][number] = Estimate(value, value, value, 3)
    assert decide(known_claims()[name].rules, columns).verdict == verdict


def test_where_no_rule_fits_nothing_is_said_of_the_claim():
    found = decide([rule("confirmed", "corrected.x > 1")], measured(x=(0.5, 0.4, 0.6)))
    assert found.verdict == NOT_TESTABLE and "No rule of this claim fits" in found.because
