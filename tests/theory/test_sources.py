import numpy as np
import pytest

from normscope.errors import NormscopeError, UsageError
from normscope.run import Run
from normscope.theory.dynamics.budget import norm_budget
from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.groups import exponent_p_values, fit_groups, holm
from normscope.theory.laws.growth import fit_growth
from normscope.theory.laws.intervals import shape_interval
from normscope.theory.laws.laws import LAWS
from normscope.theory.measures.series_set import SeriesSet, series
from normscope.theory.measures.series_sources import Selection, load

from .make_run import make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.db"
    return path, make_run(path)


def test_a_run_file_and_an_open_run_give_the_norm(made):
    path, series = made
    norms = np.sqrt(sum(np.square(values).sum(axis=1) for values in series))
    np.testing.assert_allclose(load(path)[0].values, norms, rtol=1e-12)
    with Run(path) as run:
        assert fit_growth(run).laws == fit_growth(path).laws


def test_groups_add_up_and_carry_their_names(made):
    path, _ = made
    layers = load(path, Selection(by="layer"))
    whole = load(path)[0]
    assert len(layers) == 2
    np.testing.assert_allclose(sum(s.values**2 for s in layers), whole.values**2)


def test_series_take_every_kind_of_source(made, tmp_path):
    path, _ = made
    (tmp_path / "norms.csv").write_text("step,norm,loss\n0,1,9\n10,2,8\n")
    with Run(path) as run:
        sources = [run, path, str(path), "t5-base", tmp_path / "norms.csv", ([0, 10], [1, 2])]
        sets = [series(source) for source in sources]
    assert [len(one) for one in sets] == [1] * 6
    assert [one.measure for one in sets] == ["norm", "norm", "norm", "norm", "norm", "value"]
    assert series(tmp_path / "norms.csv", "loss")[0].values.tolist() == [9, 8]


def test_a_series_set_is_a_sequence_and_a_table(made):
    path, _ = made
    layers = series(path, "rms", by="layer")
    assert isinstance(layers, SeriesSet) and (layers.measure, layers.by) == ("rms", "layer")
    assert [one.name for one in layers] == [layers[0].name, layers[-1].name] and layers[:1] == (layers[0],)
    assert list(layers.to_pandas().columns) == ["step", "group", "value"]
    assert len(layers.table) == 60 and layers.table["value"][0] == layers[0].values[0]
    assert "<table>" in layers._repr_html_()


def test_a_file_named_like_a_bundled_series_goes_first(tmp_path, monkeypatch):
    (tmp_path / "t5-base").write_text("step,norm\n0,1\n10,2\n")
    monkeypatch.chdir(tmp_path)
    assert series("t5-base")[0].values.tolist() == [1, 2]
    with pytest.raises(UsageError, match="needs the sums"):
        norm_budget("t5-base")


@pytest.mark.parametrize("source", ["nothing-here.csv", 5, (1, 2, 3), "t6-base"])
def test_anything_but_a_source_is_a_usage_error(source):
    with pytest.raises(UsageError, match="expected"):
        fit_growth(source)


def test_folder_and_other_databases_are_refused(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        fit_growth(tmp_path)
    other = tmp_path / "other.db"
    other.write_bytes(b"SQLite format 3\x00" + b"\x00" * 84)
    with pytest.raises(NormscopeError):
        fit_growth(other)


def power_fit(steps, values):
    metric = Metric.plain(len(steps))
    return shape_interval(fit_law(LAWS["power"], steps * 1.0, values, metric), steps * 1.0, values, 0)


def test_the_group_with_another_exponent_is_found():
    steps = np.arange(0, 20000, 200)
    rng = np.random.default_rng(1)
    powers = [0.50, 0.51, 0.49, 0.50, 0.52, 0.50, 0.9]
    fits = [power_fit(steps, 10 + 100 * (steps / 2e4) ** p + rng.normal(0, 0.1, len(steps))) for p in powers]
    p_values = exponent_p_values(fits)
    assert p_values[-1] < 0.05 and min(p_values[:-1]) > 0.05


def test_alike_groups_are_seldom_called_different():
    """The family-wise error of the comparison stays near its nominal 5 %."""
    rng = np.random.default_rng(2)
    steps = np.arange(0, 10000, 200)
    alarms = 0
    for _ in range(20):
        fits = [power_fit(steps, 10 + np.sqrt(steps) + rng.normal(0, 0.5, len(steps))) for _ in range(8)]
        alarms += min(exponent_p_values(fits)) < 0.05
    assert alarms <= 3


def test_groups_of_a_run(made):
    path, _ = made
    result = fit_groups(path, by="tensor")
    assert [g.group for g in result.groups] == [f.series for f in result.fits]
    assert result.groups[3].growth > 1 and result.table["group"][0].startswith("h.0")
    assert "4 groups of the body by tensor" in result.sentences[0]


def test_holm_against_its_definition():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.8])) == [1.0, 1.0]
