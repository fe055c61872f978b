"""Spacings of real series give no findings; a step that is removed is named."""

import numpy as np
import pytest

from benchmarks.simulated_runs import SPACINGS, draw_steps
from normscope.weights.soundness.spacing import learn_spacing

PYTHIA = [0, *(2**i for i in range(10)), *range(1000, 143_001, 1000)]
T5 = [*range(0, 520_201, 5100), 524_288]


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        (PYTHIA, "by a factor of 2, then every 1000"),
        (T5, "every 5100"),
        (list(range(100, 1001, 100)) + list(range(2000, 20_001, 1000)), "every 100, then every 1000"),
        ([1000, 2000, 4000, 8000, 16_000], "by a factor of 2"),
        ([0, 5000, 6000, 7000, 8000, 9000], "every 1000"),
        ([100, 210, 305, 402, 498, 610, 700], "about every 97"),
        ([3, 50], "no regular spacing"),
        ([7], "no regular spacing"),
        ([], "no regular spacing"),
    ],
)
def test_rules_without_findings(steps, rule):
    found = learn_spacing(steps)
    assert found.findings == ()
    assert found.rule == rule


@pytest.mark.parametrize("gone", [64, 5000, 77_000])
def test_one_missing(gone):
    (found,) = learn_spacing([step for step in PYTHIA if step != gone]).findings
    assert found.kind == "gap" and found.steps == (gone,)


def test_several_missing_and_a_missing_end():
    (found,) = learn_spacing([1000, 2000, 3000, 4000, 7000, 8000]).findings
    assert found.steps == (5000, 6000)
    (end,) = learn_spacing([1000, 2000, 3000, 4000, 5500]).findings
    assert end.kind == "gap" and end.steps == (5000,) and end.confidence == 0.6


def test_steps_off_the_grid():
    (extra,) = learn_spacing([1000, 2000, 2345, 3000, 4000, 5000]).findings
    assert extra.kind == "spacing" and extra.confidence < 0.5  # an extra save is a hint
    (displaced,) = learn_spacing([1000, 2000, 3000, 4345, 5000, 6000, 7000]).findings
    assert displaced.kind == "spacing" and displaced.steps == (4345,) and displaced.confidence >= 0.5


@pytest.mark.parametrize("spacing", SPACINGS)
def test_no_false_alarm(spacing):
    rng = np.random.default_rng(1)
    for _ in range(100):
        steps = draw_steps(rng, spacing).tolist()
        assert learn_spacing(steps).findings == (), steps


def test_a_factor_does_not_change_the_findings():
    for scale in (1, 3, 1000):
        (found,) = learn_spacing([scale * step for step in (1, 2, 3, 4, 6, 7, 8)]).findings
        assert found.steps == (5 * scale,)


@pytest.mark.parametrize("rounding", [round, int])
@pytest.mark.parametrize(
    ("total", "count"), [(22, 10), (160, 30), (160, 70), (1000, 12), (1437, 13), (100_000, 7), (9999, 40)]
)
def test_equal_parts_of_a_training_are_rounded(total, count, rounding):
    steps = [rounding(total * i / count) for i in range(count + 1)]
    found = learn_spacing(steps)
    assert found.findings == () and found.rule == f"every {total / count:.4g}, rounded"
    assert learn_spacing([*steps, steps[-1] + total // count // 3]).findings == ()  # the last comes early
    (gap,) = learn_spacing(steps[:4] + steps[5:]).findings
    assert gap.kind == "gap" and abs(gap.steps[0] - steps[4]) <= 1


def test_one_missing_where_checkpoints_come_by_the_clock():
    steps = [100, 210, 305, 402, 498, 610, 700, 795, 900, 1000]
    assert learn_spacing(steps).findings == ()
    (gap,) = learn_spacing([step for step in steps if step != 610]).findings
    assert gap.kind == "gap" and gap.steps == (498, 700)
