"""Saturation, heads, alarms, forecasts and sweeps in the report."""

from __future__ import annotations

import base64
import math
from dataclasses import replace

import numpy as np
import pytest

from normscope.errors import RunFileError
from normscope.run import Run, SaturationRow, ScalarRow
from normscope.views.reports.report import report, run_page

from .networks import TOKENS, attention, cell, head_rows, write_network, write_sweep
from .pages import figures
from .runs import write_walk


def unpacked(text, width):
    """Weights as the page reads them: bytes in steps of 1/254, 255 for what is not finite."""
    codes = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, width)
    return np.where(codes == 255, np.nan, codes / 254)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    return figures(report(write_network(folder / "net.db"), folder / "net.html"))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return figures(report(write_sweep(folder / "grid", 7), folder / "grid.html"))


def test_a_run_without_weights_shows_what_it_has(network):
    expected = {
        "saturation-layers",
        "saturation-training",
        "scaling",
        "heads",
        "head-reader",
        "heads-first",
        "heads-last",
        "head-flow",
        "head-positions",
        "head-types",
    }
    assert set(network) == {f"s0-{key}" for key in expected}


def test_one_layer_at_one_step_is_a_section(tmp_path):
    with Run.create(tmp_path / "run.db") as run, run.transaction():
        run.write([SaturationRow(7, "h.0", 1, 0.9, 0.01, 500, 1024.0, converged=True)])
    with Run(tmp_path / "run.db") as run:
        (stage,) = run_page(run).stages
    (section,) = stage.sections
    assert section.key == "saturation" and "saturation-layers" in {figure.key for figure in section.figures}


def test_saturation_is_beside_that_of_a_random_network(network):
    trained, random = network["s0-saturation-layers"]["traces"]
    assert trained["y"][-1] == pytest.approx(0.1 + 0.8 * 0.7) and random["y"][-1] == 0.1
    assert trained["marker"]["symbol"].count("circle-open") == 1


def test_each_layer_has_a_line_over_training(network):
    lines = [t for t in network["s0-saturation-training"]["traces"] if t["x"] != [None]]
    assert len(lines) == 7 and all(line["x"] == [0, 100, 1000] for line in lines)


def test_the_map_has_a_cell_and_details_for_each_head(network):
    spec, reader = network["s0-heads"], network["s0-head-reader"]["reader"]
    types = next(t for t in spec["traces"] if t["set"] == "type")
    assert np.shape(types["z"]) == (6, 8) and spec["linked"] == "head-reader"
    keys = {key for row in types["customdata"] for key in row}
    heads = {head["key"]: head for head in reader["heads"]}
    assert keys == set(heads)
    head = heads["encoder.layer.2.attention.self/3"]
    assert (reader["rows"][head["row"]], head["column"]) == ("3", 3)
    queries, keys = (reader["sentences"][head["sentence"]][side] for side in ("queries", "keys"))
    assert queries == keys == TOKENS
    soft, hard = (unpacked(head[kind], len(keys)) for kind in ("soft", "saturated"))
    assert soft.shape == hard.shape == (len(queries), len(keys))
    assert np.sum(soft, axis=1) == pytest.approx(1, abs=len(keys) / 2 / 254)
    assert np.sum(hard, axis=1) == pytest.approx(1)


def test_heads_of_a_stage_show_their_attention(tmp_path):
    rng = np.random.default_rng(0)
    with Run.create(tmp_path / "staged.db") as run, run.transaction():
        rows = [replace(row, stage="stage2") for row in head_rows(rng, 5, layers=2, heads=2)]
        run.write(rows)
        for row in rows:
            run.set_artifact("attention", row.example_key, attention(rng))
    (shown,) = [
        f for key, f in figures(report(run.path, tmp_path / "a.html")).items() if key.endswith("heads")
    ]
    assert shown["linked"] == "head-reader"
    (reader,) = [f["reader"] for key, f in figures(tmp_path / "a.html").items() if "reader" in f]
    assert len([head for head in reader["heads"] if head["soft"]]) == 4


def test_counts_of_types_add_up(network):
    lines = network["s0-head-types"]["traces"]
    assert np.sum([line["y"] for line in lines], axis=0).tolist() == [48, 48, 48]


def test_alarms_are_listed_with_their_evidence(tmp_path):
    path = write_walk(tmp_path / "run.db", [0, 1, 2, 3], layers=2)
    alarm = {
        "step": 3,
        "kind": "layer",
        "where": "<b>01",
        "message": "layer 01 grew by 12 %",
        "evidence": {"growth": 0.12},
    }
    with Run(path, write=True) as run, run.transaction():
        run.set_artifact("alarm", "", [alarm])
    with Run(path) as run:
        (section,) = (s for s in run_page(run).stages[0].sections if s.key == "alarms")
    assert "1 alarm, the first at step 3" in section.sentences[0]
    row = (3, "warning", "layer", "<b>01", "layer 01 grew by 12 %", "growth 0.1200")  # it says no severity
    assert section.tables[0].rows == [row]
    assert "<b>01" not in report(path, tmp_path / "x.html").read_text("utf-8")


def test_a_run_that_logged_its_rates_has_dynamics(tmp_path):
    """A walk under decay 1e-4 per step: the forecast follows the recursion and has an equilibrium."""
    steps = [int(s) for s in np.linspace(0, 20000, 21)]
    path = write_walk(tmp_path / "run.db", steps, layers=2, pull=1e-4)
    with Run(path, write=True) as run, run.transaction():
        run.write(ScalarRow(s, n, v) for s in steps for n, v in (("lr", 1e-3), ("weight_decay", 0.1)))
    drawn = figures(report(path, tmp_path / "run.html"))
    names = [trace.get("name") for trace in drawn["s0-forecast"]["traces"]]
    assert any(name and name.startswith("equilibrium") for name in names)
    sets = {trace["set"] for trace in drawn["s0-budget"]["traces"]}
    assert sets == {"direction", "cause"}


def test_the_forecast_continues_where_the_run_ends(written):
    low, high, middle, past = figures(written)["s0-forecast"]["traces"][:4]
    assert middle["x"][0] == past["x"][-1] and middle["y"][0] == past["y"][-1]
    assert middle["x"][-1] == 2 * past["x"][-1]
    assert all(a <= b <= c for a, b, c in zip(low["y"], middle["y"], high["y"], strict=True))


# -- sweeps ------------------------------------------------------------------------


def test_maps_show_the_change_and_the_loss(sweep):
    heat = next(t for t in sweep["s0-change-0"]["traces"] if t["type"] == "heatmap")
    assert np.shape(heat["z"]) == (7, 7)
    assert heat["zmin"] == -heat["zmax"]
    assert np.allclose(heat["x"], np.linspace(-5, -1, 7), atol=0.01)
    assert sweep["s0-loss-0"]["linked"] == sweep["s0-change-0"]["linked"] == "cell-0"
    assert set(filter(None, np.ravel(heat["customdata"]))) == set(sweep["s0-cell-0"]["details"])


def test_theory_and_measurement_agree_on_a_sweep_that_follows_the_theory(sweep):
    """The cells were made with the recursion: the predicted sign is the measured one in every cell."""
    contours = [
        t for t in sweep["s0-change-0"]["traces"] if t["type"] == "contour" and t["set"] == "body_norm"
    ]
    measured, predicted = (np.array(t["z"], dtype=float) for t in contours)
    both = np.isfinite(measured) & np.isfinite(predicted) & (np.abs(measured) > 1e-9)
    assert both.sum() > 30
    assert (np.sign(measured[both]) == np.sign(predicted[both])).all()


def test_a_cell_that_diverged_is_marked_and_its_error_listed(sweep, tmp_path):
    cross = next(t for t in sweep["s0-change-0"]["traces"] if t.get("name") == "diverged or failed")
    assert len(cross["x"]) >= 1
    text = report(write_sweep(tmp_path / "grid", 3), tmp_path / "grid.html").read_text("utf-8")
    assert "the loss is NaN at step 3" in text


def test_other_fields_get_a_map_each(tmp_path):
    folder = write_sweep(tmp_path / "grid", 3, extra={"norm": ["pre", "post"]})
    drawn = figures(report(folder, tmp_path / "grid.html"))
    assert {"s0-change-0", "s0-change-1"} <= set(drawn)


def test_a_sweep_of_one_field_has_curves(tmp_path):
    folder = tmp_path / "line"
    folder.mkdir()
    with Run.create(folder / "sweep.db") as run, run.transaction():
        for lr in (1e-4, 1e-3):
            document = cell(lr, 0.1, {})
            run.set_artifact("cell", document["id"], {**document, "changes": {"lr": lr}})
    drawn = figures(report(folder, tmp_path / "line.html"))
    assert len(drawn["s0-curves"]["traces"]) == 2


def test_a_sweep_without_a_finished_cell_says_so(tmp_path):
    (tmp_path / "grid").mkdir()
    Run.create(tmp_path / "grid" / "sweep.db").close()
    with pytest.raises(RunFileError, match="without a finished cell"):
        report(tmp_path / "grid", tmp_path / "grid.html")


def test_weight_decay_zero_has_its_place_on_the_logarithmic_axis(tmp_path):
    folder = tmp_path / "zero"
    folder.mkdir()
    with Run.create(folder / "sweep.db") as run, run.transaction():
        for lr in (1e-4, 1e-3, 1e-2):
            for decay in (0.0, 0.01, 0.1):
                document = cell(lr, decay or 1e-9, {})
                document |= {
                    "weight_decay": decay,
                    "changes": {"lr": lr, "weight_decay": decay},
                    "id": f"{lr}-{decay}",
                }
                run.set_artifact("cell", document["id"], document)
    axis = figures(report(folder, tmp_path / "zero.html"))["s0-change-0"]["layout"]["yaxis"]
    assert axis["ticktext"][0] == "0" and math.isclose(axis["tickvals"][0], -3)
