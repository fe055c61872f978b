"""Paths of simulated runs: no findings in sound ones, the right finding in faulty ones."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_runs import SCHEDULES, Recipe, other_run, path_of, simulate
from normscope.weights.soundness.breaks import find_breaks
from normscope.weights.soundness.path import ratio_to_neighbours, spikes

PLAIN = Recipe(
    steps=np.arange(1, 31) * 1000,
    schedule="constant",
    decay=1.0,
    drift=0.3,
    noise=1.0,
    swing=0.0,
    turning=0.3,
    rounding=0.0,
    seed=11,
)


def alarms(path):
    return [finding for finding in find_breaks(path) if finding.confidence >= 0.5]


@pytest.mark.parametrize("weights", [True, False], ids=["weights", "run file"])
@pytest.mark.parametrize("swing", [0.0, 0.2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rate_schedules_are_not_a_fault(schedule, swing, weights):
    recipe = replace(PLAIN, schedule=schedule, swing=swing)
    assert alarms(path_of(recipe.steps, simulate(recipe), weights)) == []


@pytest.mark.parametrize("weights", [True, False], ids=["weights", "run file"])
@pytest.mark.parametrize("same_start", [True, False])
@pytest.mark.parametrize("k", [4, 15, 26])
def test_boundary_is_found_at_its_place(k, same_start, weights):
    recipe = replace(PLAIN, drift=0.0)  # nothing that both runs learn alike
    runs = simulate(recipe)
    runs[k:] = other_run(recipe, np.random.default_rng(3), same_start)[k:]
    (found,) = alarms(path_of(PLAIN.steps, runs, weights))
    assert found.kind == "mixed-runs" and found.numbers["boundary"] == PLAIN.steps[k]
    assert set(found.steps) in ({*PLAIN.steps[k:]}, {*PLAIN.steps[:k]})


def test_scale_and_rotation_change_nothing():
    runs = simulate(PLAIN)
    runs[12:] = other_run(PLAIN, np.random.default_rng(3), True)[12:]
    before = alarms(path_of(PLAIN.steps, runs))
    mirror = np.random.default_rng(0).standard_normal(runs.shape[1])
    mirrored = runs - 2 * np.outer(runs @ mirror, mirror) / (mirror @ mirror)
    for other in (1000 * runs, mirrored):
        after = alarms(path_of(PLAIN.steps, other))
        assert [f.steps for f in after] == [f.steps for f in before]
        assert np.isclose(after[0].confidence, before[0].confidence)


def test_a_large_move_that_is_kept_is_not_a_break():
    """Ten times the usual move on one link, kept afterwards: a loss spike, for example, not another run."""
    runs = simulate(PLAIN)
    jump = np.random.default_rng(5).standard_normal(runs.shape[1])
    runs[14:] += 10 * np.linalg.norm(runs[14] - runs[13]) * jump / np.linalg.norm(jump)
    assert alarms(path_of(PLAIN.steps, runs)) == []


def test_undone_against_the_vectors():
    runs = simulate(PLAIN)
    path = path_of(PLAIN.steps, runs)
    for j in range(2, len(runs)):
        delta, away = runs[j] - runs[j - 1], runs[j - 1] - runs[0]
        assert np.isclose(path.undone[0][j], -delta @ away)
        assert np.isclose(path.travelled[0][j], away @ away)
        assert np.isclose(path.undone[1][j], -delta @ runs[j - 1])
        expected = runs[j] @ runs[j - 1] / np.linalg.norm(runs[j]) / np.linalg.norm(runs[j - 1])
        assert np.isclose(path.cosine(j), expected)


def test_without_the_first_checkpoint():
    """A run file of a live monitor may lack ⟨θ₀, θ⟩; runs with different starts are still found."""
    runs = simulate(PLAIN)
    runs[12:] = other_run(PLAIN, np.random.default_rng(3), False)[12:]
    path = path_of(PLAIN.steps, runs, weights=False)
    (found,) = alarms(replace(path, dot_init=np.full(len(path), np.nan)))
    assert found.kind == "mixed-runs"


def test_ratio_to_neighbours():
    values = np.array([np.nan, 1.0, 1.0, 8.0, 2.0, 1.0])
    ones = np.ones(6)
    assert ratio_to_neighbours(values, ones, 3) == 4
    assert ratio_to_neighbours(values, ones, 3, {4}) == 8
    assert ratio_to_neighbours(values, np.array([1, 1, 1, 2, 1, 1.0]), 3) == 1  # twice as long: four times
    assert np.isnan(ratio_to_neighbours(values[:3], ones[:3], 1))


def test_spikes_distinguish_outliers_from_kinks_and_steps():
    line = np.arange(12.0)
    assert np.abs(spikes(line)).max() == 0
    assert np.abs(spikes(np.maximum(line, 6))).max() == 0  # a kink
    assert np.abs(spikes(-np.abs(line - 6))).max() <= 1  # an extremum
    assert np.abs(spikes(line + 100 * (line > 5))).max() <= 1  # a new level
    line[6] -= 30
    assert np.argmin(spikes(line)) == 6 and spikes(line)[6] < -5


def test_perfectly_smooth_and_constant_norms():
    for norms in (np.ones(20), np.sqrt(np.arange(1, 21.0)), np.exp(-np.arange(20) / 5)):
        runs = np.outer(norms, np.ones(10))
        assert alarms(path_of(np.arange(1, 21), runs)) == []


@pytest.mark.parametrize(("i", "j"), [(5, 6), (5, 7), (10, 14), (3, 25)])
def test_exchanged_checkpoints_are_named(i, j):
    runs = simulate(PLAIN)
    runs[[i, j]] = runs[[j, i]]
    (found,) = alarms(path_of(PLAIN.steps, runs))
    assert found.kind == "order" and found.steps == (PLAIN.steps[i], PLAIN.steps[j])
    assert found.numbers["before"] == pytest.approx(np.linalg.norm(runs[i - 1] - runs[j]))


def test_a_mild_disturbance_between_near_neighbours():
    """A move no larger than others, but the neighbours are much nearer to each other."""
    recipe = replace(PLAIN, schedule="drops")
    runs = simulate(recipe)
    least, most = (f(np.linalg.norm(np.diff(runs, axis=0), axis=1)) for f in (np.min, np.max))
    noise = np.random.default_rng(1).standard_normal(runs.shape[1])
    k = int(np.argmin(np.linalg.norm(np.diff(runs, axis=0), axis=1)))
    runs[k] += 3 * least * noise / np.linalg.norm(noise)
    assert 3 * least < most
    (found,) = alarms(path_of(recipe.steps, runs))
    assert found.kind == "outlier" and found.steps == (recipe.steps[k],)


def test_equal_neighbours_are_not_exchanged():
    runs = simulate(PLAIN)
    runs[8] = runs[7]
    assert [f.kind for f in alarms(path_of(PLAIN.steps, runs))] == []
