"""Series of simulated runs: no findings in sound ones, the right finding in faulty ones."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.audit_rates import at_a_jump, from_sums
from benchmarks.run_families import family_of_rows
from benchmarks.simulated_runs import SCHEDULES, Recipe, other_run, rate_jumps, simulate
from normscope.weights.soundness.breaks import find_breaks
from normscope.weights.soundness.norm_spikes import spikes
from normscope.weights.soundness.splices import judge

PLAIN = Recipe(
    steps=np.arange(1, 31) * 1000,
    schedule="constant",
    decay=1.0,
    drift=0.3,
    noise=1.0,
    swing=0.0,
    turning=0.3,
    rounding=0.0,
    pace=1.0,
    moving=1.0,
    seed=11,
)


def series_of(runs, steps=PLAIN.steps, sample=True):
    family = family_of_rows("test", np.asarray(steps), {"a": np.asarray(runs)}, 3)
    series = family.series(family.picks())
    return series if sample else from_sums(series)


def alarms(series):
    return [finding for finding in find_breaks(*series) if finding.confidence >= 0.5]


@pytest.mark.parametrize("sample", [True, False], ids=["sample", "sums"])
@pytest.mark.parametrize("swing", [0.0, 0.2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rate_schedules_are_not_a_fault(schedule, swing, sample):
    """Only a jump that nothing tells from a splice is named, as a break with both readings."""
    recipe = replace(PLAIN, schedule=schedule, swing=swing)
    found = alarms(series_of(simulate(recipe), sample=sample))
    jumps = [x * recipe.steps[-1] for x in rate_jumps(schedule, recipe.seed % 1000 / 1000)]
    assert all(at_a_jump(finding, recipe.steps, jumps) for finding in found)
    # The last restart is in the last link, where nothing shows how training goes on.
    assert len(found) == (schedule in ("spike", "restarts"))


@pytest.mark.parametrize("pace", [1.0, 0.01], ids=["training", "fine-tuning"])
@pytest.mark.parametrize("sample", [True, False], ids=["sample", "sums"])
@pytest.mark.parametrize("same_start", [True, False])
@pytest.mark.parametrize("k", [4, 15, 29])
def test_boundary_is_found_at_its_place(k, same_start, sample, pace):
    recipe = replace(PLAIN, drift=0.0, pace=pace)  # nothing that both runs learn alike
    runs = simulate(recipe)
    runs[k:] = other_run(recipe, np.random.default_rng(3), same_start)[k:]
    (found,) = alarms(series_of(runs, sample=sample))
    assert found.kind == ("mixed-runs" if k < 29 else "outlier")
    assert found.numbers["boundary"] == PLAIN.steps[k]
    assert set(found.steps) in ({*PLAIN.steps[k:]}, {*PLAIN.steps[:k]})


def test_a_block_of_another_run_that_is_longer_than_the_rest():
    runs = simulate(replace(PLAIN, drift=0.0))
    away = np.random.default_rng(3).standard_normal(runs.shape[1])
    runs[2:24] += 3 * away / np.linalg.norm(away)  # the end continues the beginning
    (found,) = alarms(series_of(runs))
    assert found.steps == (*PLAIN.steps[:2], *PLAIN.steps[24:])


def test_runs_that_separated_before_the_first_checkpoint():
    recipe = replace(PLAIN, drift=0.0)
    runs = simulate(recipe)
    runs[22:] = other_run(recipe, np.random.default_rng(3), True)[22:]
    (found,) = alarms(series_of(runs[15:], PLAIN.steps[15:]))
    assert found.kind == "mixed-runs" and found.numbers["boundary"] == PLAIN.steps[22]


def test_scale_and_rotation_change_nothing():
    runs = simulate(PLAIN)
    runs[12:] = other_run(PLAIN, np.random.default_rng(3), True)[12:]
    before = alarms(series_of(runs))
    mirrored = runs.copy()
    for part in np.array_split(np.arange(runs.shape[1]), 3):  # tensor by tensor
        mirror = np.random.default_rng(0).standard_normal(len(part))
        mirrored[:, part] -= 2 * np.outer(runs[:, part] @ mirror, mirror) / (mirror @ mirror)
    for other in (1000 * runs, mirrored):
        after = alarms(series_of(other))
        assert [f.steps for f in after] == [f.steps for f in before] != []
        assert np.isclose(after[0].numbers["kept"], before[0].numbers["kept"])


def with_jump(times, at=14):
    """A run with one link so many times as long, in a direction of its own, kept afterwards."""
    runs = simulate(PLAIN)
    jump = np.random.default_rng(5).standard_normal(runs.shape[1])
    size = np.linalg.norm(runs[at] - runs[at - 1])
    runs[at:] += np.sqrt(times**2 - 1) * size * jump / np.linalg.norm(jump)
    return runs


@pytest.mark.parametrize("at", [1, 2, 14, 28, 29])
@pytest.mark.parametrize("times", [2.5, 4, 10])
def test_a_large_move_that_is_kept_is_a_break_with_both_readings(times, at):
    """Training alone could do it, but nothing shows that it did."""
    table, sumsq = series_of(with_jump(times, at))
    (found,) = alarms((table, sumsq))
    assert found.kind == "break" and found.confidence < 0.7 and found.numbers["boundary"] == PLAIN.steps[at]
    assert "either another run" in found.evidence and "the learning rate jumped" in found.evidence
    if at == 14 and times >= 4:
        assert judge(table, at, set()).kept > 0.8 and abs(judge(table, at, set()).undone) < 0.1


@pytest.mark.parametrize("at", [1, 2, 14, 28, 29])
def test_a_move_of_less_than_twice_the_usual_size_is_nothing(at):
    assert find_breaks(*series_of(with_jump(1.7, at))) == []


def test_a_jump_after_which_training_moves_faster_is_a_restart():
    runs = simulate(PLAIN)
    slow = runs[13] + 0.2 * (runs - runs[13])
    slow[14:] = slow[13] + (runs[14:] - runs[13])
    assert alarms(series_of(slow)) == []


def test_a_jump_between_the_two_readings_is_a_break():
    """Half of the jump leads back, half is kept: it is said that both readings are possible."""
    runs = simulate(replace(PLAIN, drift=0.0))
    away = runs[13] - runs[0]
    jump = np.random.default_rng(5).standard_normal(runs.shape[1])
    size = 6 * np.linalg.norm(runs[14] - runs[13])
    runs[14:] += size * jump / np.linalg.norm(jump) - 0.3 * away
    (found,) = alarms(series_of(runs))
    assert found.kind == "break" and "or the learning rate jumped" in found.evidence


def test_undone_and_kept_against_the_vectors():
    runs = simulate(PLAIN)
    runs[12:] = other_run(PLAIN, np.random.default_rng(3), True)[12:]
    found = judge(series_of(runs)[0], 12, set())
    delta = runs[12] - runs[11]
    shares = [-(delta @ (runs[11] - runs[i])) / np.sum((runs[11] - runs[i]) ** 2) for i in range(11)]
    assert found.undone == pytest.approx(min(shares), abs=1e-6)
    growth = np.diff(np.sum((runs - runs[0]) ** 2, axis=1))  # element i − 1 is the growth of link i
    moved = np.sum(np.diff(runs, axis=0) ** 2, axis=1)
    near = [9, 10, 12, 13]
    kept = (growth[11] - np.median(growth[near])) / (moved[11] - np.median(moved[near]))
    assert found.kept <= kept + 1e-9


def test_without_the_first_checkpoint():
    """A run file of a live monitor may lack ⟨θ₀, θ⟩; runs with different starts are still found."""
    runs = simulate(PLAIN)
    runs[12:] = other_run(PLAIN, np.random.default_rng(3), False)[12:]
    table, sumsq = series_of(runs, sample=False)
    for values in (table.squared, table.cosine, table.shared):
        values[0, 2:] = values[2:, 0] = np.nan
    assert {finding.kind for finding in alarms((table, sumsq))} == {"mixed-runs"}


@pytest.mark.parametrize("count", [4, 5, 12])
def test_unrelated_seeds(count):
    rng = np.random.default_rng(0)
    runs = [other_run(PLAIN, rng, False)[20] for _ in range(count)]
    (found,) = alarms(series_of(runs, PLAIN.steps[:count]))
    assert found.kind == "mixed-runs" and len(found.steps) == count
    assert "no two of" in found.evidence


def test_foreign_first_checkpoint_but_not_a_start_that_training_leaves():
    runs = simulate(PLAIN)
    runs[0] = other_run(PLAIN, np.random.default_rng(3), False)[0]
    (found,) = alarms(series_of(runs))
    assert found.kind == "outlier" and found.steps == (1000,)
    grown = simulate(PLAIN)
    grown[1:] += 12 * np.random.default_rng(4).standard_normal(grown.shape[1]) / np.sqrt(grown.shape[1])
    # the cosine is small, but all of the start is still there
    assert alarms(series_of(grown, PLAIN.steps - PLAIN.steps[0])) == []
    assert [finding.kind for finding in alarms(series_of(grown))] == ["break"]  # it does not begin at step 0


def test_alternating_runs_with_one_start():
    recipe = replace(PLAIN, drift=0.0)
    runs = simulate(recipe)
    runs[1::2] = other_run(recipe, np.random.default_rng(3), True)[1::2]
    (found,) = alarms(series_of(runs))
    assert found.kind == "mixed-runs" and "every second checkpoint" in found.evidence


def test_spikes_distinguish_outliers_from_kinks_and_steps():
    line, steps = np.arange(12.0), np.arange(12)
    assert np.abs(spikes(line, steps)).max() == 0
    assert np.abs(spikes(np.maximum(line, 6), steps)).max() == 0  # a kink
    assert np.abs(spikes(-np.abs(line - 6), steps)).max() <= 1  # an extremum
    assert np.abs(spikes(line + 100 * (line > 5), steps)).max() <= 1  # a new level
    line[6] -= 30
    assert np.argmin(spikes(line, steps)) == 6 and spikes(line, steps)[6] < -5


def test_a_norm_that_turns_while_the_intervals_grow_is_not_a_spike():
    steps = np.array([4, 5, 6, 8, 11, 17, 35, 93, 400])
    norms = np.array([24.51, 24.51, 24.51, 24.50, 24.50, 24.49, 24.43, 24.14, 24.52])
    assert np.abs(spikes(np.log(norms), steps)).max() < 4


def test_perfectly_smooth_and_constant_norms():
    for norms in (np.ones(20), np.sqrt(np.arange(1, 21.0)), np.exp(-np.arange(20) / 5)):
        assert alarms(series_of(np.outer(norms, np.ones(12)), np.arange(1, 21))) == []


@pytest.mark.parametrize(("i", "j"), [(5, 6), (5, 7), (10, 14), (3, 25)])
def test_exchanged_checkpoints_are_named(i, j):
    runs = simulate(PLAIN)
    runs[[i, j]] = runs[[j, i]]
    (found,) = alarms(series_of(runs))
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
    (found,) = alarms(series_of(runs))
    assert found.kind == "outlier" and found.steps == (recipe.steps[k],)


def test_equal_neighbours_are_not_exchanged():
    runs = simulate(PLAIN)
    runs[8] = runs[7]
    assert [f.kind for f in alarms(series_of(runs))] == []


@pytest.mark.parametrize("sample", [True, False], ids=["sample", "sums"])
@pytest.mark.parametrize("end", [9, 30])
def test_nothing_else_moves(end, sample):
    """A frozen model and one foreign checkpoint, or many: no usual move to divide by."""
    runs = np.repeat(simulate(PLAIN)[:1], 30, axis=0)
    runs[8:end] += np.random.default_rng(2).standard_normal(runs.shape[1]) / 50
    found = alarms(series_of(runs, sample=sample))
    assert [f.kind for f in found] == (["outlier"] if end == 9 else [])
    assert all(np.isfinite(list(f.numbers.values())).all() and "nan" not in f.evidence for f in found)


def test_a_moving_average_for_one_is_older_than_its_label():
    """The jump after it is named, not the checkpoints that follow: they are right."""
    runs = simulate(replace(PLAIN, drift=3.0))
    runs[14] = np.average(runs[9:15], axis=0)
    (found,) = alarms(series_of(runs))
    assert PLAIN.steps[14] in found.steps and "older than its label" in found.evidence


def test_a_training_that_moves_in_bursts_is_never_surely_another_run():
    """Few directions and sizes that vary a hundredfold, as where a model is wrong once in a while only."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        size = np.concatenate([[8, 4, 2, 1], np.exp(rng.normal(-1, 1.2, 20))])
        moves = size[:, None] * rng.standard_normal((24, 400))
        runs = 20 * rng.standard_normal(400) + np.cumsum(np.vstack([np.zeros(400), moves]), axis=0)
        found += [f for f in alarms(series_of(runs, np.arange(25))) if f.confidence > 0.6]
    assert len(found) <= 2


def test_a_large_last_move_is_a_hint_if_the_moves_before_it_are_not_steady():
    """Fine-tuned weights after the run, or a restart: nothing follows that could tell."""
    runs = simulate(PLAIN)
    runs[-3:] += 0.7 * (runs[-3] - runs[-4])
    jump = np.random.default_rng(5).standard_normal(runs.shape[1])
    runs[-1] += 12 * np.linalg.norm(runs[-1] - runs[-2]) * jump / np.linalg.norm(jump)
    (found,) = find_breaks(*series_of(runs))
    assert found.kind == "break" and found.confidence < 0.5 and found.steps == (PLAIN.steps[-1],)
    assert "either another run" in found.evidence and "too few checkpoints follow" in found.evidence
