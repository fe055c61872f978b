"""One page of several runs: what it shows, and what it says before anyone compares too much."""

import numpy as np
import pytest

import normscope as ns
from normscope.errors import UsageError
from normscope.run import CheckpointRow, Run
from normscope.theory.run_cards import run_cards
from normscope.views.page.page import render
from normscope.views.reports.several_runs import compared_page
from tests.cli.calling import SMALL, call
from tests.views.pages import figures
from tests.views.runs import write_walk

STEPS = [0, 10, 20, 40, 80, 160]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two runs of one model, a third that is larger, and a log."""
    folder = tmp_path_factory.mktemp("several")
    write_walk(folder / "a.db", STEPS, layers=2)
    write_walk(folder / "b.db", [*STEPS, 320], layers=2, seed=1)
    write_walk(folder / "large.db", STEPS, layers=4)
    (folder / "log.csv").write_text("step,norm\n" + "".join(f"{s},{3 + s**0.5}\n" for s in STEPS))
    return folder


def page_of(place, *names, **options):
    paths = [str(place / name) for name in names]
    return compared_page(paths, paths, **options)


def table(page, key):
    return next(t for s in page.stages[0].sections for t in s.tables if t.key == key)


def column(found, name):
    return [row[found.columns.index(name)] for row in found.rows]


def test_curves_are_those_of_the_runs_each_in_one_colour(place):
    page = page_of(place, "a.db", "b.db")
    lines = [t for t in page.figures[0].traces if t["set"] == "steps"]
    for line, name in zip(lines, ("a", "b"), strict=True):
        (norms,) = ns.series(place / f"{name}.db")
        assert line["name"] == name and line["x"] == norms.steps.tolist()
        assert np.allclose(line["y"], norms.values, rtol=1e-5)
    relative = [t for t in page.figures[0].traces if t["set"] == "relative"]
    assert all(
        np.allclose(r["y"], np.array(s["y"]) / s["y"][0], rtol=1e-4)
        for r, s in zip(relative, lines, strict=True)
    )
    assert [r["line"]["color"] for r in relative] == [s["line"]["color"] for s in lines]
    assert len({s["line"]["color"] for s in lines}) == 2


def test_the_table_has_what_differs(place):
    found = table(page_of(place, "a.db", "b.db"), "runs")
    (a,), (b,) = ns.series(place / "a.db"), ns.series(place / "b.db")
    assert column(found, "run") == ["a", "b"]
    assert column(found, "steps") == ["0 to 160, 6 points", "0 to 320, 7 points"]
    assert column(found, "norm of the body, first") == [a.values[0], b.values[0]]
    fit = ns.fit_growth(place / "b.db")
    assert column(found, "exponent")[1].startswith(f"{fit.exponent.value:.3f}")
    with Run(place / "a.db") as run:
        assert column(found, "parameters")[0] == sum(t.numel for t in run.tensors() if t.tied_to is None)
    ratio = column(table(page_of(place, "a.db", "b.db"), "against-first"), "ratio")[0]
    assert ratio == pytest.approx(b.values[5] / a.values[-1])


def test_groups_have_one_colour_in_all_runs_and_add_up(place):
    page = page_of(place, "a.db", "b.db")
    layers = next(f for f in page.figures if f.key == "run-layers")
    colours = [
        {t["name"]: t["line"]["color"] for t in layers.traces if t.get("set") == f"run {i}"} for i in (0, 1)
    ]
    assert colours[0] == colours[1] and len(colours[0]) == 2
    values = column(table(page, "layer-norms"), "b")
    (b,) = ns.series(place / "b.db", until=160)
    assert np.sqrt(np.sum(np.square(values))) == pytest.approx(b.values[-1], rel=1e-9)


def test_what_forbids_a_comparison_is_said_at_the_top(place):
    page = page_of(place, "a.db", "large.db", "log.csv")
    assert any("models have different sizes" in line for line in page.warnings)
    assert any("do not count the same parameters" in line for line in page.warnings)
    section = next((s for s in page.stages[0].sections if s.key == "groups"), None)
    assert section is None  # no two runs with the same tensors
    ended = page_of(place, "a.db", "b.db").warnings
    assert any("end at different steps" in line and "step 160" in line for line in ended)


def test_an_unsound_series_is_said_before_everything_else(place, tmp_path):
    from normscope.remarks import Finding, write_remarks

    path = write_walk(tmp_path / "odd.db", STEPS, layers=2, seed=3)
    finding = Finding("duplicate", (20, 40), "the files have equal digests", 1.0)
    with Run(path, write=True) as run, run.transaction():
        write_remarks(run, [], [finding])
    page = compared_page([str(place / "a.db"), str(path)], ["a.db", "odd.db"])
    assert [line.partition(":")[0] for line in page.stages[0].doubts.sure] == ["odd"]
    assert column(table(page, "runs"), "sound") == ["not checked", "no"]


def test_tokens_are_a_button_only_where_they_are_known(place, tmp_path):
    assert [b.key for b in page_of(place, "a.db", "b.db").figures[0].buttons] == ["steps", "relative"]
    path = write_walk(tmp_path / "tokens.db", STEPS, layers=2, seed=4)
    with Run(path, write=True) as run, run.transaction():
        run.write([CheckpointRow(s, f"s{s}", "here", tokens=1000 * s) for s in STEPS])
    figure = compared_page([str(place / "a.db"), str(path)], ["a", "tokens"]).figures[0]
    assert [b.key for b in figure.buttons] == ["steps", "relative", "tokens"]
    (line,) = [t for t in figure.traces if t["set"] == "tokens"]
    assert line["x"] == [1000 * s for s in STEPS] and line["name"] == "tokens"
    assert "not of a" in figure.note


def test_stages_of_one_run_are_curves_of_their_own(tmp_path):
    path = tmp_path / "staged.db"
    write_walk(path, [0, 100, 200], layers=2, stage="first")
    write_walk(path, [0, 10, 20], layers=2, stage="second", seed=1)
    assert [card.name for card in run_cards("x", path)] == ["x (first)", "x (second)"]


@pytest.mark.slow
def test_cells_of_a_sweep_are_compared_with_their_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("sweep", "--lr", "0.01,0.03", "--steps", 6, *SMALL, "-o", "grid")
    assert done.code == 0, done.stderr
    done = call("report", "grid@lr=0.01", "grid@lr=0.03", "-o", "cells.html")
    assert done.code == 0, done.stderr
    page = compared_page(["grid@lr=0.01", "grid@lr=0.03"], ["grid@lr=0.01", "grid@lr=0.03"])
    assert column(table(page, "runs"), "run") == ["lr=0.01", "lr=0.03"]
    settings = table(page, "settings")
    assert any(row[1:] == ("0.01", "0.03") for row in settings.rows)
    assert figures(tmp_path / "cells.html")["s0-norms"]
    refused = call("report", "grid", "grid@lr=0.01")
    assert refused.code == 2 and "name cells to compare" in refused.stderr


def test_every_kind_of_source_can_stand_beside_another(place, tmp_path):
    page = ns.report([place / "a.db", "t5-base", str(place / "log.csv")], tmp_path / "mixed.html")
    names = [t["name"] for t in figures(page)["s0-norms"]["traces"] if t["set"] == "steps"]
    assert names == ["a", "t5-base", "log"]


def test_too_many_runs_are_refused(place):
    with pytest.raises(UsageError, match="do not fit on one page"):
        page_of(place, *["a.db"] * 41)


def test_an_exponent_whose_interval_is_wider_than_itself_is_not_shown(place, tmp_path):
    steps = np.arange(1, 41)
    noise = np.random.default_rng(3).normal(0, 0.4, len(steps))
    for name, values in {"clear": 3 + steps**0.5, "unclear": 10 + 0.3 * np.log(steps) + noise}.items():
        lines = [f"{s},{v}\n" for s, v in zip(steps, values, strict=True)]
        (tmp_path / f"{name}.csv").write_text("step,norm\n" + "".join(lines))
    fits = [ns.fit_growth(tmp_path / f"{name}.csv") for name in ("clear", "unclear")]
    assert [fit.exponent.tells for fit in fits] == [True, False]
    page = page_of(tmp_path, "clear.csv", "unclear.csv")
    shown, hidden = column(table(page, "runs"), "exponent")
    assert shown.startswith("0.5") and hidden.startswith("not known (")
    figure = next(f for f in page.figures if f.key == "run-exponents")
    assert [trace["name"] for trace in figure.traces] == ["clear"] and "unclear" in figure.note


def test_names_of_cells_may_go_on_in_the_next_line_and_stay_text(place, tmp_path):
    for name in ("lr=1,<b>=2", "lr=2,<b>=2"):
        (tmp_path / f"{name}.csv").write_text((place / "log.csv").read_text())
    html = render(page_of(tmp_path, "lr=1,<b>=2.csv", "lr=2,<b>=2.csv"))
    assert "<td>lr=1,<wbr>&lt;b&gt;=2</td>" in html
