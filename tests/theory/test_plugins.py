"""Laws and measures that other packages add are treated like ours."""

from functools import partial

import numpy as np
import pytest

from normscope.errors import NormscopeError, PluginError, UsageError
from normscope.run import MeasureRow, Run, TensorRow, WeightRow
from normscope.theory.forecasts.forecast import forecast
from normscope.theory.laws.groups import fit_groups
from normscope.theory.laws.growth import fit_growth
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.laws import LAWS, Law
from normscope.theory.measures.long_table import long_table
from normscope.theory.measures.series_set import series

from .make_run import NAMES, make_run

STEPS = np.arange(0, 60000, 600)


def cube_root(name="cube-root", parameters=("a", "b"), **more):
    def basis(t, _):
        return np.stack([np.cbrt(t), np.ones_like(t)])

    return Law(name, "a·∛t + b", parameters, "growth with the cube root of the step", basis, **more)


@pytest.fixture
def install(install_plugins):
    return partial(install_plugins, "laws")


def test_a_plugin_law_is_chosen_where_it_is_true(install):
    noise = np.random.default_rng(0).normal(0, 0.01, len(STEPS))
    values = 5 + 2 * np.cbrt(STEPS) + noise
    before = fit_growth((STEPS, values))
    install(cube=cube_root())
    fit = fit_growth((STEPS, values))
    assert fit.best == "cube-root" and fit.decided and "cube root of the step" in fit.sentences[0]
    assert before.best != "cube-root" and len(fit.laws) == len(before.laws) + 1
    np.testing.assert_allclose(fit.curve(STEPS), 5 + 2 * np.cbrt(STEPS), atol=0.02)
    ahead = forecast((STEPS, values), 10**6)
    assert ahead.method == "laws" and ahead.laws["cube-root"] == pytest.approx(205, abs=0.1)
    assert ahead.value == pytest.approx(205, rel=0.01) and ahead.low < 205 < ahead.high


def test_a_plugin_law_that_is_not_true_changes_nothing_else(install):
    before = fit_growth("t5-base")
    install(cube=cube_root())
    fit = fit_growth("t5-base")
    assert fit.candidates == before.candidates and fit.exponent == before.exponent
    assert [law for law in fit.laws if law.name != "cube-root"] == list(before.laws)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("a·∛t", "of the package norm-extras cannot be used: it is of type str; expected a Law"),
        (cube_root("sqrt"), "a growth law called 'sqrt', which exists already"),
        (cube_root(parameters=("a", "b", "c")), r"shape \(2, 8\), not \(3, 8\)"),
        (cube_root(slope=lambda t, q: t), "needs guesses and bounds"),
        (Law("broken", "?", ("a",), "", lambda t, _: 1 / 0), "raises ZeroDivisionError"),
    ],
)
def test_a_plugin_that_is_not_a_sound_law_is_refused(install, law, message):
    install(cube=law)
    with pytest.raises(PluginError, match=message):
        fit_growth("t5-base")


def test_two_plugins_may_not_add_the_same_law(install):
    install(cube=cube_root(), cube_again=cube_root())
    with pytest.raises(PluginError, match="exists already"):
        laws()


def test_without_plugins_there_are_the_built_in_laws(install):
    install()
    assert laws() == LAWS


@pytest.fixture
def measured(tmp_path):
    """A run in which a plugin measured all tensors but the last, the second one not at step 200."""
    path = tmp_path / "run.db"
    make_run(path, steps=(0, 100, 200))
    rows = [MeasureRow(step, i, "spectral-norm", step + i) for step in (0, 100, 200) for i in range(3)]
    with Run(path, write=True) as run, run.transaction():
        run.write(row for row in rows if (row.step, row.tensor) != (200, 1))
        run.write([MeasureRow(200, 1, "spectral-norm", None), MeasureRow(0, 3, "spectral-norm", None)])
    return path


def points(found):
    return {one.name: dict(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for one in found}


def test_the_values_of_a_plugin_measure_by_tensor(measured):
    names = list(NAMES)
    assert points(series(measured, "spectral-norm", by="tensor")) == {
        names[0]: {0: 0, 100: 100, 200: 200},
        names[1]: {0: 1, 100: 101},
        names[2]: {0: 2, 100: 102, 200: 202},
    }


def test_a_group_has_the_plain_mean_where_all_its_tensors_have_a_value(measured):
    assert points(series(measured, "spectral-norm")) == {"total": {0: 1, 100: 101}}
    layers = points(series(measured, "spectral-norm", by="layer"))
    assert list(layers.values()) == [{0: 0.5, 100: 100.5}, {0: 2, 100: 102, 200: 202}]


def test_a_plugin_measure_is_shown_and_fitted_like_ours(measured):
    with Run(measured) as run:
        table = long_table(run, "spectral-norm", by="layer").table
    assert set(table["measure"]) == {"spectral-norm"} and len(table) == 5
    fits = fit_groups(measured, measure="spectral-norm", by="layer")
    assert fits.fits[0].points == 3 and "2 usable points" in fits.sentences[-1]


def test_an_unknown_measure_lists_ours_and_the_plugins(measured):
    with pytest.raises(
        UsageError, match="unknown measure 'spectral': expected one of norm, .*plugins.*spectral-norm"
    ):
        series(measured, "spectral")
    with pytest.raises(UsageError, match="'budget' stands for several measures: .*growth, radial, diffusive"):
        series(measured, "budget")


def test_a_measure_of_embeddings_alone_has_nothing_in_the_body(tmp_path):
    """The scope is that of the model, not of the tensors that the plugin happened to measure."""
    path = tmp_path / "run.db"
    with Run.create(path) as run, run.transaction():
        run.add_tensors([TensorRow(1, "wte.weight", "model", None, "embedding", (4, 4), "float32", 16)])
        run.add_tensors([TensorRow(2, "h.0.mlp.weight", "model", 0, "mlp in", (4, 4), "float32", 16)])
        run.write([WeightRow(step, -1, tensor, 1.0) for step in (0, 1) for tensor in (1, 2)])
        run.write([MeasureRow(step, 1, "rank", 2.0) for step in (0, 1)])
    with pytest.raises(NormscopeError):
        series(path, "rank")
    assert [len(found) for found in series(path, "rank", scope="all")] == [2]
