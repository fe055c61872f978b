"""A series too long for a table of all pairs: what is found piece by piece is what is found at once."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.simulated_runs import SCHEDULES, other_run, simulate
from normscope.rows import TensorRow
from normscope.run import Run
from normscope.weights.soundness import check, pieces
from normscope.weights.soundness.tensor_checks import TensorSums
from tests.weights.test_breaks import PLAIN

N = 400
RECIPE = replace(PLAIN, steps=np.arange(1, N + 1) * 1000)


def sums_of(runs):
    """The sums of three matrices, as a scan writes them."""
    parts = np.array_split(runs, 3, axis=1)
    moves = [np.diff(part, axis=0, prepend=np.nan) for part in parts]
    before = [np.concatenate([np.full((1, part.shape[1]), np.nan), part[:-1]]) for part in parts]

    def each(first, second):
        return np.stack([np.einsum("ij,ij->i", a, b) for a, b in zip(first, second, strict=True)], axis=1)

    starts = [np.broadcast_to(part[0], part.shape) for part in parts]
    rows = [
        TensorRow(i + 1, f"{i}.weight", "", None, "other", (20, -1), "float64", part.shape[1])
        for i, part in enumerate(parts)
    ]
    nothing = np.zeros((len(runs), 3))
    return TensorSums(
        each(parts, parts),
        each(before, moves),
        each(moves, moves),
        each(starts, parts),
        nothing,
        RECIPE.steps[: len(runs)],
        tuple(rows),
    )


def found_in(runs, monkeypatch, tmp_path, whole):
    monkeypatch.setattr(check, "MOST_COMPARED", whole)
    monkeypatch.setattr(check, "load_sums", lambda *_: sums_of(runs))
    tmp_path.mkdir(exist_ok=True)
    with Run.create(tmp_path / f"{whole}.db") as run:
        return check.check_sums(run, "", {int(step): None for step in RECIPE.steps})


@cache
def two_runs():
    return simulate(replace(RECIPE, drift=0.0)), other_run(RECIPE, np.random.default_rng(3), False)


def damaged(place, kind):
    one, other = two_runs()
    runs = one.copy()
    if kind == "another start":
        runs[place:] = other[place:]
    if kind == "one of another run":
        runs[place] = other[place]
    if kind == "spike":
        runs[place] *= 3
    return runs


@pytest.mark.parametrize("place", [30, 83, 84, 85, 98, 130, 200, 263, 371])
@pytest.mark.parametrize("kind", ["another start", "one of another run", "spike"])
def test_the_same_is_found_wherever_it_is(kind, place, monkeypatch, tmp_path):
    monkeypatch.setattr(pieces, "LENGTH", 100)
    monkeypatch.setattr(pieces, "OVERLAP", 32)
    runs = damaged(place, kind)
    whole = found_in(runs, monkeypatch, tmp_path, N)
    long = found_in(runs, monkeypatch, tmp_path, 100)
    assert [finding.kind for finding in long] == [finding.kind for finding in whole] != []
    for ours, theirs in zip(long, whole, strict=True):
        assert ours.numbers.get("boundary") == theirs.numbers.get("boundary")
        assert RECIPE.steps[place] in ours.steps or RECIPE.steps[place - 1] in ours.steps


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pieces_raise_no_alarm_that_the_whole_does_not(schedule, monkeypatch, tmp_path):
    """Also where the learning rate jumps, which is named once, wherever the pieces meet."""
    monkeypatch.setattr(pieces, "LENGTH", 100)
    monkeypatch.setattr(pieces, "OVERLAP", 32)
    for seed in (2, 5):
        runs = simulate(replace(RECIPE, schedule=schedule, seed=seed))
        whole, long = (found_in(runs, monkeypatch, tmp_path / f"{seed}", each) for each in (N, 100))
        assert [_place(finding) for finding in long] == [_place(finding) for finding in whole]


def _place(finding):
    return finding.kind, finding.numbers.get("boundary", finding.steps)


@pytest.mark.parametrize("checkpoints", [2001, 2937, 5000, 10_000])
def test_pieces_cover_every_step_once_and_are_small(checkpoints):
    class Part:
        rows = np.arange(checkpoints)
        columns = np.ones(1, dtype=bool)
        judged_columns = np.arange(1)
        steps = np.arange(checkpoints) * 10
        sums = None

    found = list(pieces.in_pieces(Part(), 2000))
    owned = [step for piece in found for step in piece.own]
    assert sorted(owned) == Part.steps.tolist()
    assert max(len(piece.places) for piece in found) <= pieces.LENGTH + 1
    assert all(piece.places[0] == 0 for piece in found)
