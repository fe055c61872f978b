import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.run import Run, ScalarRow
from normscope.theory.dynamics.budget import budget, norm_budget
from normscope.theory.dynamics.interval_sums import IntervalSums, sums_from_cosine
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.measures.time_series import Series

from .make_run import make_run


def sums_of(path):
    """The sums of a list of parameter vectors, one per step."""
    path = np.asarray(path)
    before, after = path[:-1], path[1:]
    delta = after - before
    rows = [
        np.einsum("ij,ij->i", a, b)
        for a, b in ((before, before), (after, after), (before, delta), (delta, delta))
    ]
    return IntervalSums("total", np.arange(len(delta)) * 1.0, np.arange(1, len(path)) * 1.0, *rows)


def test_the_parts_add_up_exactly_for_every_group(tmp_path):
    series = make_run(tmp_path / "run.db")
    for result, values in zip(norm_budget(tmp_path / "run.db", by="tensor"), series, strict=True):
        growth = values[-1] @ values[-1] - values[0] @ values[0]
        assert result.growth == pytest.approx(growth, rel=1e-9)
        assert result.radial + result.diffusive == pytest.approx(growth, rel=1e-9)
    (whole,) = norm_budget(tmp_path / "run.db")
    parts = norm_budget(tmp_path / "run.db", by="layer")
    assert whole.diffusive == pytest.approx(sum(part.diffusive for part in parts))


def test_a_random_walk_is_diffusive_and_a_straight_line_is_radial():
    rng = np.random.default_rng(0)
    walk = budget(sums_of(np.cumsum(rng.standard_normal((200, 2000)), axis=0)))
    assert walk.diffusive_share == pytest.approx(1, abs=0.1) and "misaligned regime" in walk.sentences[0]
    line = budget(sums_of(np.outer(np.linspace(1, 3, 200), rng.standard_normal(50))))
    assert line.diffusive_share < 0.05 and "aligned regime" in line.sentences[0]
    assert line.alignment == pytest.approx(1)


def test_decay_is_separated_from_gradient():
    """θ ← (1 − ηλ)θ + ηg, one step per interval: both parts are known exactly."""
    rng = np.random.default_rng(1)
    lr, decay, theta = 0.1, 0.2, rng.standard_normal(500)
    path, lost = [theta], 0.0
    for _ in range(300):
        lost += ((1 - lr * decay) ** 2 - 1) * theta @ theta
        theta = (1 - lr * decay) * theta + lr * rng.standard_normal(500)
        path.append(theta)
    result = budget(sums_of(path), rates=Rates.constant(lr, decay))
    assert result.decay == pytest.approx(lost, rel=0.02)
    assert result.decay + result.gradient == pytest.approx(result.growth)
    assert "Weight decay took back" in result.sentences[1]


def test_shrinking_and_since():
    result = budget(sums_of(np.outer(np.linspace(3, 1, 20), np.ones(5))), since=10)
    assert result.diffusive_share is None and "fell" in result.sentences[0]
    assert (result.since, result.until) == (10, 19)
    with pytest.raises(SeriesError, match="no interval"):
        budget(sums_of(np.ones((3, 4))), since=10)


def test_t5_is_as_the_facts_describe_it():
    """The alignment rises early, then falls towards 0; the last, shorter interval has a smaller update."""
    (result,) = norm_budget("t5-base")
    alignment, update = np.array(result.intervals["alignment"]), np.array(result.intervals["update"])
    peak = int(alignment.argmax())
    assert 0 < peak < 10 and alignment[0] < 0 < alignment[peak] < 0.25
    assert 0 < alignment[-1] < 0.03 and (np.diff(alignment[10:]) < 0.005).all()
    assert update[-1] / update[-2] == pytest.approx(np.sqrt(4088 / 5100), abs=0.05)
    assert result.growth == pytest.approx(4166.2061**2 - 470.60751**2)
    assert "then falls" in result.sentences[-1]


def test_cosines_give_the_same_sums_as_vectors():
    rng = np.random.default_rng(2)
    path = np.cumsum(rng.standard_normal((30, 100)), axis=0)
    norms = np.linalg.norm(path, axis=1)
    cosines = np.einsum("ij,ij->i", path[1:], path[:-1]) / norms[1:] / norms[:-1]
    found = sums_from_cosine(Series("n", np.arange(30), norms), Series("c", np.arange(1, 30), cosines))
    slow = sums_of(path)
    np.testing.assert_allclose(found.dot, slow.dot, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.sumsq_delta, slow.sumsq_delta, rtol=1e-8)


def test_recorded_rates_are_used(tmp_path):
    make_run(tmp_path / "run.db")
    with Run(tmp_path / "run.db", write=True) as run, run.transaction():
        run.write([ScalarRow(0, "lr", 1e-3), ScalarRow(0, "weight_decay", 0.1)])
    (result,) = norm_budget(tmp_path / "run.db")
    assert result.decay < 0 and "decay" in result.intervals.columns


def test_a_norm_series_has_no_budget(tmp_path):
    with pytest.raises(UsageError, match="needs the sums"):
        norm_budget(([1, 2], [3, 4]))
    make_run(tmp_path / "one.db", steps=(5,))
    with pytest.raises(SeriesError, match="no two consecutive"):
        norm_budget(tmp_path / "one.db")
    with pytest.raises(SeriesError, match="share no step"):
        sums_from_cosine(Series("a", [1, 2], [1.0, 2.0]), Series("b", [5], [1.0]))


def test_the_budgets_of_a_run_are_a_sequence_and_a_table(tmp_path):
    make_run(tmp_path / "run.db")
    budgets = norm_budget(tmp_path / "run.db", by="layer")
    assert budgets.by == "layer" and list(budgets) == list(budgets.groups) and len(budgets) == 2
    assert budgets.table["growth"] == [group.growth for group in budgets]
    assert "<table>" in budgets._repr_html_() and budgets.messages == ("Norm budgets of the body.",)
    assert norm_budget(tmp_path / "run.db").messages[0].startswith("The body: ")
