"""Each measure against torch on the parameters themselves, and the identities between them."""

import numpy as np
import pytest
import torch

from normscope.anatomy import in_body, locate
from normscope.errors import RunFileError, SeriesError, UsageError
from normscope.run import Run, TensorRow, WeightRow
from normscope.theory.measures.long_table import long_table
from normscope.theory.measures.measures import group
from normscope.theory.measures.run_summary import constant_tensors, summarise
from normscope.theory.measures.series_set import series
from normscope.weights.scan.scan import scan
from tests.conftest import save_series


@pytest.fixture
def run(tmp_path, series_folder):
    with scan(series_folder, tmp_path / "run.db") as opened:
        yield opened


def flat(state, keep):
    return torch.cat([value.double().flatten() for name, value in state.items() if keep(name)])


def body(name):
    return in_body(locate(name).role, (1,))


DEFINITIONS = {
    "norm": lambda x, p, z: x.norm(),
    "rms": lambda x, p, z: x.square().mean().sqrt(),
    "distance": lambda x, p, z: (x - z).norm(),
    "cosine": lambda x, p, z: p @ x / p.norm() / x.norm(),
    "update": lambda x, p, z: (x - p).norm(),
    "alignment": lambda x, p, z: p @ (x - p) / p.norm() / (x - p).norm(),
    "radial": lambda x, p, z: 2 * p @ (x - p),
    "diffusive": lambda x, p, z: (x - p).square().sum(),
    "growth": lambda x, p, z: x.square().sum() - p.square().sum(),
}


@pytest.mark.parametrize("measure", DEFINITIONS)
@pytest.mark.parametrize("scope", ["body", "all"])
def test_totals_are_the_definitions(run, states, measure, scope):
    keep = body if scope == "body" else lambda name: True
    steps = sorted(states)
    vectors = [flat(states[step], keep) for step in steps]
    (found,) = series(run, measure, scope=scope)
    needs_previous = measure not in ("norm", "rms", "distance")
    expected = [
        float(DEFINITIONS[measure](x, p, vectors[0]))
        for x, p in zip(vectors[needs_previous:], [vectors[0], *vectors][needs_previous:], strict=False)
    ]
    assert found.steps.tolist() == steps[needs_previous:]
    np.testing.assert_allclose(found.values, expected, rtol=1e-6, atol=1e-4 * float(vectors[0].norm()))


def test_non_finite_values_have_a_measure_of_their_own(tmp_path):
    """Counts that no other column has, different in every tensor and step."""
    states = {step: {name: torch.randn(50) for name in ("h.0.w.weight", "h.1.w.weight")} for step in (10, 20)}
    states[10]["h.0.w.weight"][:3] = float("nan")
    states[20]["h.0.w.weight"][:5] = float("inf")
    states[20]["h.1.w.weight"][7:9] = float("-inf")
    with scan(save_series(tmp_path / "series", states), tmp_path / "run.db") as run:
        found = [each.values.tolist() for each in series(run, "nonfinite", by="tensor", scope="all")]
        (total,) = series(run, "nonfinite", scope="all")
    assert found == [[3, 5], [0, 2]]
    assert total.values.tolist() == [3, 7]


@pytest.mark.parametrize("by", ["layer", "role", "tensor", "component"])
def test_groups_add_up_to_the_total(run, by):
    total = group(run, scope="all")
    parts = group(run, by=by, scope="all")
    for name in ("sumsq", "dot", "sumsq_delta", "dot_init", "numel"):
        np.testing.assert_allclose(
            getattr(parts, name).sum(axis=-1), getattr(total, name).sum(axis=-1), rtol=1e-12, equal_nan=True
        )


def test_groups_are_named_by_the_anatomy(run):
    assert group(run, by="layer", scope="all").groups == ("00", "01", "02", "outside")
    assert "embedding" not in group(run, by="role").groups
    assert "embedding" in group(run, by="role", scope="all").groups


def test_layers_are_ordered_by_number(tmp_path):
    with Run.create(tmp_path / "deep.db") as run, run.transaction():
        for layer in (100, 11, 2):
            run.add_tensors([TensorRow(layer, f"h.{layer}.x", "model", layer, "other", (1,), "float32", 1)])
            run.write([WeightRow(0, -1, layer, 1.0)])
    with Run(tmp_path / "deep.db") as run:
        assert group(run, by="layer").groups == ("02", "11", "100")


def test_bounds(run):
    for by in ("total", "tensor"):
        grouped = group(run, by=by, scope="all")
        for name in ("cosine", "alignment"):
            values = grouped.measure(name)
            assert np.nanmax(np.abs(values)) <= 1 + 1e-9


def test_the_budget_adds_up_to_the_growth_of_the_squared_norm(run):
    (norm,) = series(run, "norm")
    found = long_table(run, "budget")
    total = sum(found.cells[step, "total", "growth"] for step in found.steps)
    assert total == pytest.approx(norm.values[-1] ** 2 - norm.values[0] ** 2, rel=1e-6)
    for step in found.steps:
        growth, radial, diffusive = found.values(step, "total")
        assert growth == pytest.approx(radial + diffusive)


def test_a_long_table_of_some_steps_has_the_same_values(run):
    whole = long_table(run, "budget", by="layer")
    first, *kept, last = whole.steps
    part = long_table(run, "budget", by="layer", since=first + 1, until=last - 1)
    assert part.steps == tuple(kept) == (100,)
    assert part.cells == {key: value for key, value in whole.cells.items() if key[0] in kept}
    with pytest.raises(SeriesError, match="points are left from step"):
        long_table(run, since=last + 1)
    with pytest.raises(UsageError, match="no step is both"):
        long_table(run, since=2, until=1)


def test_a_long_table_of_any_source(tmp_path):
    (tmp_path / "losses.csv").write_text("step,loss,budget\n0,4,1\n10,3,2\n20,2,5\n")
    found = long_table(tmp_path / "losses.csv", "budget", since=10)
    assert found.groups == (str(tmp_path / "losses.csv"),) and found.measures == ("budget",)
    assert found.table["value"] == [2, 5]
    assert long_table("t5-base", since=524_000).table["group"] == ["t5-base"]
    assert long_table(([0, 1], [2.0, 3.0])).measures == ("value",)


def live_run(path, steps):
    """One-step updates only, as a monitor writes them: no row for the step before."""
    with Run.create(path) as run, run.transaction():
        run.add_tensors([TensorRow(1, "h.0.mlp.c_fc.weight", "model", 0, "mlp in", (2,), "float32", 2)])
        run.write(WeightRow(step, step - 1, 1, 4.0, 0.5, 1.0) for step in steps)
    return Run(path)


def test_a_live_run_has_one_step_updates(tmp_path):
    with live_run(tmp_path / "live.db", [1, 10, 100]) as run:
        grouped = group(run)
        before = 4.0 - 2 * 0.5 - 1.0
        np.testing.assert_allclose(grouped.sumsq_previous[:, 0], before)
        np.testing.assert_allclose(grouped.measure("cosine")[:, 0], (before + 0.5) / (before * 4) ** 0.5)
        assert grouped.previous.tolist() == [0, 9, 99]


def test_unknown_words_are_refused(run):
    for words in ({"measure": "weight"}, {"by": "colour"}, {"scope": "soul"}, {"stage": "2"}):
        with pytest.raises(UsageError, match="expected one of|no stage|unknown scope"):
            series(run, **words)


def test_an_empty_run(tmp_path):
    with (
        Run.create(tmp_path / "run.db") as run,
        pytest.raises(RunFileError, match="no weight statistics yet"),
    ):
        series(run)


def test_summary(run, states):
    found = summarise(run)
    (stage,) = found.stages
    assert (stage.checkpoints, stage.first_step, stage.last_step) == (4, 0, 1000)
    assert stage.norm_all_last == pytest.approx(float(flat(states[1000], lambda name: True).norm()), rel=1e-7)
    assert stage.norm_last == pytest.approx(float(flat(states[1000], body).norm()), rel=1e-7)
    assert found.parameters == sum(value.numel() for value in states[0].values())
    assert found.warnings == ()
    assert constant_tensors(run) == []
