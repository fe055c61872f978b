"""`ns.plot`: the right figure of every kind of result, in readable colours, with title, axes and scope."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import normscope as ns
from normscope.errors import UsageError
from normscope.rows import ScalarRow
from normscope.run import Run
from normscope.views.figures.training import scalar_figures
from normscope.views.plotting.plot import DRAWINGS
from normscope.views.plotting.step_axis import root_ticks
from tests.theory.make_run import make_run

from .networks import cell
from .pages import figures
from .results import of_lab, of_network, of_theory
from .runs import write_walk

TRACES = {
    "run": 1,
    "series": 1,
    "series set": 5,  # four layers and the colour bar
    "groups": 1,
    "forecast": 4,
    "backtest": 2,
    "comparison": 2,
    "budget": 3,
    "budgets": 2,
    "saturation": 2,
    "heads": 1,
    "similarity": 1,
    "both": 2,
    "look-ahead": 1,
    "audit": 1,
    "train": 2,
    "sweep": 6,  # two maps with the failed cells, and two boundaries
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    found = {**of_theory(folder), **of_network(), **of_lab(folder)}
    yield found
    found["run"].close()


def test_every_result_is_drawn(results):
    sentences_only = {"AdviceList"}
    assert {type(result).__name__ for result in results.values()} - sentences_only == set(DRAWINGS)


@pytest.mark.parametrize("name", [*TRACES, "fit", "homogeneity"])
def test_a_figure_has_its_traces_a_title_axis_titles_and_its_scope(results, name):
    figure = ns.plot(results[name])
    if name in TRACES:
        assert len(figure.data) == TRACES[name]
    assert len(figure.layout.title.text) > 10 and figure.layout.title.subtitle.text
    assert figure.layout.xaxis.title.text
    assert figure.layout.yaxis.title.text or name == "look-ahead"
    assert "@" not in figure.to_json().replace("@media", "")
    assert figure.layout.paper_bgcolor == "white"


def drawn(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


def test_a_series_shows_its_values_and_names_its_source():
    series = ns.series("t5-base")[0]
    points = ns.plot(series).data[0]
    assert list(points.x) == series.steps.tolist()
    assert np.allclose(points.y, series.values, rtol=1e-5)
    assert "t5-base · 104 points · steps 0 to 524,288" in ns.plot(series).layout.title.subtitle.text
    assert ns.plot("t5-base").to_json() == ns.plot(series).to_json()


def test_a_run_states_that_it_shows_the_body(results):
    assert "body: without embeddings and output head" in ns.plot(results["run"]).layout.title.subtitle.text
    assert "body" in ns.plot(results["budgets"]).layout.title.subtitle.text
    whole = ns.series(results["run"], scope="all")
    assert "all parameters" in ns.plot(whole).layout.title.subtitle.text


def test_a_run_with_stages_has_a_line_per_stage(tmp_path):
    path = write_walk(tmp_path / "staged.db", [0, 100, 200], layers=1, stage="first")
    write_walk(path, [0, 10, 20], layers=1, stage="second", seed=1)
    with Run(path) as run:
        figure = ns.plot(run)
        second = ns.series(run, stage="second")[0]
    assert [trace.name for trace in figure.data] == ["first", "second"]
    assert ns.plot(path).to_json() == figure.to_json()
    assert np.allclose(drawn(figure, "second").y, second.values, rtol=1e-5)


def test_the_layers_of_a_set_are_its_series(results):
    found = results["series set"]
    figure = ns.plot(found)
    for series in found:
        assert np.allclose(drawn(figure, series.name).y, series.values, rtol=1e-5)


def test_a_fit_shows_points_laws_and_residuals(results):
    fit = results["fit"]
    figure = ns.plot(fit)
    law = figure.data[-2]  # the points are on top
    assert np.allclose(law.y, fit.curve(law.x), rtol=1e-5)
    assert list(drawn(figure, "measured").x) == fit.data.steps.tolist()
    assert len(figure.data) == len(fit.laws) + 1
    residuals = ns.plot(fit, show="residuals").data[0]
    assert np.allclose(residuals.y, fit.data.values - fit.curve(fit.data.steps), atol=0.1)


def test_a_forecast_continues_its_past(results):
    found = results["forecast"]
    figure = ns.plot(found)
    assert drawn(figure, "measured").y[-1] == drawn(figure, "expected").y[0]
    assert drawn(figure, "expected").y[-1] == pytest.approx(found.value, rel=1e-5)
    assert drawn(figure, "95 % interval").y[-1] == pytest.approx(found.high, rel=1e-5)


def test_groups_show_exponents_and_growth(results):
    found = results["groups"]
    exponents = ns.plot(found).data[0]
    assert np.allclose(exponents.y, [group.exponent for group in found.groups], rtol=1e-5)
    growth = ns.plot(found, show="growth").data[0]
    assert np.allclose(growth.y, [group.growth for group in found.groups], rtol=1e-5)


def test_a_comparison_shows_both_runs(results):
    found = results["comparison"]
    a, b = ns.plot(found).data
    assert dict(zip(a.x, a.y, strict=True))["00"] == pytest.approx(
        next(g.value_a for g in found.groups if g.group == "00"), rel=1e-5
    )
    assert b.name.endswith("b.db")
    a, b = ns.plot(found, show="exponents").data
    assert len(a.y) == len(b.y) == len(found.groups)


def test_the_title_of_a_comparison_counts_the_groups_that_stay_apart(tmp_path):
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    make_run(a)
    make_run(b, exponents=(0.5, 0.7, 0.5, 0.8))
    different, same = (ns.plot(ns.compare(a, other, by="tensor")).layout.title.text for other in (b, a))
    assert different.startswith("1 of 4 tensors") and "differ" in different
    assert same.startswith("No tensor") and "differs" in same


def test_a_budget_adds_up(results):
    radial, diffusive, total = ns.plot(results["budget"]).data
    assert np.allclose(np.add(radial.y, diffusive.y), total.y, rtol=1e-4)
    radial, diffusive = ns.plot(results["budgets"]).data
    assert sum(radial.y) + sum(diffusive.y) == pytest.approx(sum(total.y), rel=1e-4)


def test_network_results_show_their_numbers(results):
    saturation, heads, homogeneity = (results[name] for name in ("saturation", "heads", "homogeneity"))
    trained, random = ns.plot(saturation).data
    assert np.allclose(trained.y, [layer.cosine for layer in saturation.layers], atol=1e-5)
    assert np.allclose(random.y, [layer.baseline for layer in saturation.layers], atol=1e-5)
    positions = ns.plot(heads, show="positions").data[0]
    assert np.ravel(positions.z).tolist() == pytest.approx([head.positions for head in heads.heads], rel=1e-3)
    assert np.shape(ns.plot(heads).data[0].z) == (2, 2)
    degrees = ns.plot(homogeneity, show="degree").data[0]
    assert np.allclose(degrees.y, [degree.degree for degree in homogeneity.degrees], rtol=1e-5)
    output = drawn(ns.plot(homogeneity, show="norm"), "output")
    assert np.allclose(output.y, homogeneity.output.norm, rtol=1e-5)
    assert ns.plot(results["look-ahead"]).data[0].x[0] == pytest.approx(
        results["look-ahead"].change, rel=1e-5
    )


def test_saturation_and_heads_are_side_by_side(results):
    layers, types = ns.plot(results["both"]).data
    assert (layers.type, types.type, types.xaxis) == ("scatter", "heatmap", "x2")
    assert ns.plot(results["both"], show="saturation-layers").data[0].y == layers.y


def test_an_audit_marks_the_checkpoints_of_its_findings(results):
    points = ns.plot(results["audit"]).data[0]
    assert list(zip(points.x, points.y, strict=True)) == [
        (100, "duplicate"),
        (200, "duplicate"),
        (400, "gap"),
    ]
    assert list(points.marker.color) == [0.99, 0.99, 0.4]
    assert "not sound: 2 findings in 7 checkpoints" in ns.plot(results["audit"]).layout.title.text


def test_training_shows_loss_and_norm_and_each_scalar_that_changes(results):
    loss, norm = ns.plot(results["train"]).data
    assert (list(loss.y), list(norm.y), norm.xaxis) == ([5, 4, 3, 2, 1], [3, 4, 5, 6, 7], "x2")
    assert list(ns.plot(results["train"], show="norm").data[0].y) == [3, 4, 5, 6, 7]
    with pytest.raises(UsageError, match="it has training, loss and norm"):
        ns.plot(results["train"], show="lr")


def test_figures_of_scalars_are_called_by_what_they_mean_or_else_by_their_name():
    values = {"loss": [5.0, 3.0], "grad_norm": [1.0, 2.0], "odd\x1b": [1.0, 4.0], "same": [1.0, 1.0]}
    rows = [ScalarRow(step, name, each[step]) for name, each in values.items() for step in (0, 1)]
    found = scalar_figures(rows, {"grad_norm": "the norm of the gradient"})
    assert {name: figure.title for name, figure in found.items()} == {
        "loss": "loss: 5.000 at the start, 3.000 at the end",
        "grad_norm": "the norm of the gradient: 1.000 at the start, 2.000 at the end",
        "odd\x1b": "odd\\x1b: 1.000 at the start, 4.000 at the end",
    }
    axes = [figure.layout["yaxis"]["title"]["text"] for figure in found.values()]
    assert next(iter(found)) == "loss" and "the norm of the gradient" in axes and None not in axes


def test_a_sweep_shows_norm_change_and_loss(results):
    change, *_, loss, _ = ns.plot(results["sweep"]).data
    first = min(results["sweep"].cells, key=lambda cell: (cell["lr"], cell["weight_decay"]))
    assert np.shape(change.z) == np.shape(loss.z) == (5, 5)
    assert loss.z[0][0] == pytest.approx(first["loss"], rel=1e-3)
    grown = np.log2(first["body_norm_end"] / first["body_norm_start"])
    assert change.z[0][0] == pytest.approx(grown, rel=1e-3)
    names = [trace.name for trace in ns.plot(results["sweep"], show="norm").data]
    assert "measured: no change" in names and "norm recursion" in names


def test_a_sweep_of_one_field_shows_curves(results):
    line = [{**cell(lr, 0.1, {}), "changes": {"lr": lr}} for lr in (1e-4, 1e-3)]
    sweep = type(results["sweep"])(results["sweep"].out, results["sweep"].run, line)
    assert [trace.name for trace in ns.plot(sweep).data] == ["lr 0.0001", "lr 0.001"]


def test_the_report_and_plot_draw_the_same_figure(written, run_path):
    """The traces differ only in what a figure outside the page needs: colours and hover data."""
    fit = ns.fit_growth(run_path)
    in_report = figures(written)["s0-growth"]["traces"]
    for trace, other in zip(ns.plot(fit).data, in_report, strict=True):
        assert (trace.name, list(trace.y)) == (other["name"], other["y"])


# -- options ---------------------------------------------------------------------------


def test_axes_can_be_scaled(results):
    root = ns.plot(results["fit"], x_axis="sqrt")
    points = drawn(root, "measured")
    assert np.allclose(np.square(points.x), points.customdata)
    assert np.allclose(np.square(root.layout.xaxis.tickvals), root_ticks(0, 524288))
    log = ns.plot(results["fit"], x_axis="log", y_axis="log")
    assert (log.layout.xaxis.type, log.layout.yaxis.type) == ("log", "log")
    assert "not shown on a logarithmic axis" in log.layout.title.subtitle.text  # step 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"show": "nonsense"}, "no figure 'nonsense'; it has growth and residuals"),
        ({"x_axis": "cubic"}, "x_axis must be one of linear, sqrt, log; got 'cubic'"),
        ({"y_axis": "sqrt"}, "y_axis must be one of linear, log; got 'sqrt'"),
        ({"show": "residuals", "y_axis": "log"}, "does not apply to this figure"),
    ],
)
def test_wrong_options_are_refused(results, options, words):
    with pytest.raises(UsageError, match=words):
        ns.plot(results["fit"], **options)


def test_a_step_scale_is_refused_where_there_are_no_steps(results):
    with pytest.raises(UsageError, match="does not apply"):
        ns.plot(results["heads"], x_axis="log")


class Series:
    """A stranger with the name of one of our classes."""


@pytest.mark.parametrize("thing", [3, None, Series(), {"step": 1}])
def test_what_is_not_a_result_is_refused_with_the_list_of_results(thing):
    with pytest.raises(
        UsageError, match="ns.plot draws Ablations, Audit, Automaton, Backtest, .*TrainResult"
    ):
        ns.plot(thing)


def test_markup_in_names_stays_text(tmp_path):
    table = tmp_path / "<b>bold.csv"
    table.write_text("step,norm\n0,1\n10,2\n")
    figure = ns.plot(table)
    assert "&lt;b&gt;bold.csv" in figure.layout.title.subtitle.text


def test_a_long_title_is_wrapped(results):
    text = ns.plot(results["fit"], width=400).layout.title.text
    assert "<br>" in text and max(map(len, text.split("<br>"))) < 60


def test_plotting_loads_no_torch():
    code = "import sys, normscope as ns; ns.plot('t5-base'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
