"""When to record: membership against the list, and the text form."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.errors import UsageError
from normscope.schedule import AtSteps, Every, Logarithmic, at_steps, every, logarithmic, parse


@given(
    st.one_of(st.builds(Every, st.integers(1, 50)), st.builds(Logarithmic, st.integers(1, 40))),
    st.integers(0, 3000),
)
def test_membership_and_list_agree(schedule, until):
    assert schedule.steps(until) == [step for step in range(until + 1) if step in schedule]
    assert schedule.steps(until)[0] == 0


def test_logarithmic_is_even_in_log():
    assert logarithmic(1).steps(5000) == [0, 1, 10, 100, 1000]
    points = logarithmic(10).steps(10**6)
    ratios = [b / a for a, b in itertools.pairwise(points[20:])]
    assert all(ratio == pytest.approx(10**0.1, rel=0.02) for ratio in ratios)


def test_listed_steps():
    assert at_steps([5, 1, 100]).steps(50) == [1, 5]
    assert 2 not in at_steps([1])


@pytest.mark.parametrize("schedule", [every(7), logarithmic(12), at_steps([0, 3, 9]), AtSteps(frozenset())])
def test_text_form_round_trip(schedule):
    assert parse(str(schedule)) == schedule


@pytest.mark.parametrize("text", ["sometimes", "every:x", "every:0", "log:0", "1,two"])
def test_nonsense_is_refused(text):
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (every, 0, "must be an integer ≥ 1; got 0"),
        (every, 2.5, "must be an integer ≥ 1; got 2.5"),
        (logarithmic, 0.5, "must be an integer ≥ 1; got 0.5"),
        (at_steps, [3, -3], "steps must be integers ≥ 0; got -3"),
        (at_steps, [1.5], "steps must be integers ≥ 0; got 1.5"),
        (at_steps, "10", "steps must be integers ≥ 0; got '[10]'"),
    ],
)
def test_steps_that_cannot_be_recorded_are_refused(make, given, message):
    with pytest.raises(UsageError, match=message):
        make(given)


def test_integers_of_numpy_are_integers():
    assert at_steps(np.arange(0, 30, 10)).steps(15) == every(np.int64(10)).steps(15) == [0, 10]
