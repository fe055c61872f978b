import json

import numpy as np
import pytest

from normscope.cli.output import plain
from normscope.errors import SeriesError
from normscope.theory.laws.compare import compare
from normscope.theory.measures.time_series import Series

from .make_run import make_run

STEPS = np.arange(0, 10000, 100)


def noisy(power, seed, bend=None):
    rng = np.random.default_rng(seed)
    values = 20 + 80 * (STEPS / 1e4) ** power + 0.05 * rng.standard_normal(len(STEPS))
    if bend is not None:
        values = values * np.where(bend <= STEPS, 1 + 0.1 * (STEPS - bend) / 1e4, 1.0)
    return Series("norm", STEPS, values)


def test_equal_runs_do_not_differ():
    result = compare(noisy(0.5, 0), noisy(0.5, 1))
    assert result.groups[0].since is None and not result.groups[0].differs
    assert "do not differ" in result.sentences[0]


def test_since_when():
    result = compare(noisy(0.5, 0), noisy(0.5, 1, bend=4000))
    assert 4500 <= result.groups[0].since <= 5500
    assert result.groups[0].ratio == pytest.approx(1.06, abs=0.01)


def test_comparing_backwards_inverts_the_ratio():
    there, back = compare(noisy(0.5, 0), noisy(0.7, 1)), compare(noisy(0.7, 1), noisy(0.5, 0))
    assert there.groups[0].ratio == pytest.approx(1 / back.groups[0].ratio)
    assert there.groups[0].p_value == pytest.approx(back.groups[0].p_value)
    assert there.groups[0].differs and "Different powers" in there.sentences[1]


def test_equal_exponents_are_seldom_called_different():
    alarms = sum(compare(noisy(0.5, 2 * i), noisy(0.5, 2 * i + 1)).groups[0].differs for i in range(15))
    assert alarms <= 3


def test_groups_of_two_runs(tmp_path):
    make_run(tmp_path / "a.db")
    make_run(tmp_path / "b.db", exponents=(0.5, 0.7, 0.5, 0.8))
    result = compare(tmp_path / "a.db", tmp_path / "b.db", by="tensor")
    assert result.groups[0].group == "h.0.mlp.c_fc.weight" and result.groups[0].since is not None
    assert all(group.since is None for group in result.groups[1:])
    json.dumps(plain(result), allow_nan=False)
    assert result.table["ratio"][1] == pytest.approx(1) and "<table>" in result._repr_html_()


def test_different_steps_are_compared_where_both_are():
    fine, coarse = noisy(0.5, 0), noisy(0.5, 1)
    coarse = Series("norm", coarse.steps[10:60:7], coarse.values[10:60:7])
    result = compare(fine, coarse)
    assert (result.first_step, result.last_step) == (1000, 5900)


def test_nothing_in_common_is_a_sentence(tmp_path):
    late = Series("norm", STEPS + 10**6, noisy(0.5, 0).values)
    with pytest.raises(SeriesError, match="share no steps"):
        compare(noisy(0.5, 0), late)
    make_run(tmp_path / "a.db")
    make_run(tmp_path / "b.db", prefix="other.")
    with pytest.raises(SeriesError, match="share no group by tensor: one has h.0.*other.h.0"):
        compare(tmp_path / "a.db", tmp_path / "b.db", by="tensor")


def test_two_points_each_are_compared_without_exponents():
    result = compare(([0, 10], [1.0, 2.0]), ([0, 10], [1.0, 3.0]))
    assert result.groups[0].ratio == 1.5 and result.groups[0].p_value is None


def test_exponents_that_nobody_has_are_not_said_to_be_equal():
    steps = np.arange(0, 6000, 100)
    constant, grown = (steps, np.full(len(steps), 3.0)), (steps, 10 + np.sqrt(steps))
    found = compare(constant, grown)
    assert found.groups[0].p_value is None
    assert any("not compared" in sentence for sentence in found.sentences)
    assert not any("No exponent differs" in sentence for sentence in found.sentences)
    assert any("No exponent differs" in sentence for sentence in compare(grown, grown).sentences)


def test_a_huge_ratio_is_a_factor():
    steps = np.arange(0, 6000, 100)
    found = compare((steps, 1e-30 * (10 + np.sqrt(steps))), (steps, 1e12 * (10 + np.sqrt(steps))))
    assert "a factor 1e+42 from" in found.sentences[0] and "%" not in found.sentences[0]
