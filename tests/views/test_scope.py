"""The scope stands beside every norm that a person sees: on pages, in figures, tables and files."""

import csv
import json

import numpy as np
import pytest

import normscope as ns
from normscope.run import Run
from normscope.theory.measures.measures import group
from normscope.views.page.formatting import number
from normscope.views.page.page import render
from normscope.views.reports.report import report, run_page
from normscope.views.reports.sweep import sweep_page
from normscope.words import printable

from .doubtful import write_embeddings_only
from .networks import write_sweep
from .pages import figures
from .runs import write_walk

STEPS = [0, *(int(step) for step in np.geomspace(10, 2000, 12))]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_walk(tmp_path_factory.mktemp("scope") / "run.db", STEPS, layers=3)


@pytest.fixture(scope="module")
def page(path):
    with Run(path) as run:
        return run_page(run)


def ends(path, scope):
    with Run(path) as run:
        norms = group(run, scope=scope).measure("norm")[:, 0]
    return [number(norm) for norm in norms[[0, -1]]]


def test_the_summary_has_the_norm_of_the_body_and_that_of_all(page, path):
    (first, last), (all_first, all_last) = ends(path, "body"), ends(path, "all")
    assert (first, last) != (all_first, all_last)
    sentence = page.stages[0].summary[0]
    assert f"The norm of the body grew from {first} at step 0 to {last} at step 2,000" in sentence
    assert f"with embeddings and head from {all_first} to {all_last}" in sentence
    start, end = page.stages[0].facts[:2]
    assert (start.label, start.value) == ("Norm of the body at the start", first)
    assert (end.label, end.value) == ("Norm of the body at the end", last)
    assert all_first in start.note and all_last in end.note and "with embeddings and head" in end.note


def test_every_tile_and_every_figure_of_weights_names_the_scope(page):
    (stage,) = page.stages
    assert all("of the body" in fact.label for fact in stage.facts)
    weights = [
        figure
        for section in stage.sections
        if section.key in ("growth", "groups", "direction", "budget", "forecast")
        for figure in section.figures
    ]
    assert len(weights) >= 9
    for figure in weights:
        assert "of the body" in figure.title, figure.title
        axes = [figure.layout["yaxis"]["title"]["text"], *(button.axis for button in figure.buttons)]
        unlike = ("measured − law", "free exponent")
        assert all("of the body" in axis for axis in axes if axis and not axis.startswith(unlike)), axes


def test_every_table_of_norms_names_the_scope(page):
    tables = [table for section in page.stages[0].sections for table in section.tables]
    norms = [table for table in tables if any("norm" in column for column in table.columns)]
    assert len(norms) == 3
    for table in norms:  # the key is the name of the CSV file that the page saves
        assert "of the body" in table.title and "norm-of-the-body" in table.key


def test_nothing_on_the_page_calls_the_body_the_whole_model(page):
    text = render(page).partition("<script>")[0]
    assert "whole model" not in text and "parameter norm" not in text


def test_how_much_is_outside_the_body_is_said(page):
    sentences = [sentence for section in page.closing for sentence in section.sentences]
    assert any("7,200 are embeddings, output head and scalars" in sentence for sentence in sentences)


def test_a_model_without_a_body_says_so(tmp_path):
    path = write_embeddings_only(tmp_path / "run.db")
    with Run(path) as run:
        page = run_page(run)
        assert group(run).scope == group(run, scope="body").scope == "all (no body)"
    assert "The norm of all parameters (there is no body) grew" in page.stages[0].summary[0]
    assert "with embeddings" not in page.stages[0].summary[0]
    assert ns.series(path)[0].scope == "all (no body)" and ns.series(path, scope="all")[0].scope == "all"
    assert ns.fit_growth(path).sentences[0].startswith("The norm of all parameters (there is no body)")


def test_a_series_of_unknown_scope_claims_none(tmp_path):
    text = report("t5-base", tmp_path / "t5.html").read_text("utf-8").partition("<script>")[0]
    assert "of the body" not in text and "all parameters" not in text
    assert ns.fit_growth("t5-base").scope == ""


def test_the_line_under_a_figure_names_the_scope(path):
    other = ns.series(path, scope="all")[0]
    for result, words in ((ns.fit_growth(path), "the body"), (other, "all parameters")):
        figure = ns.plot(result)
        assert words in figure.layout.title.text and words in figure.layout.yaxis.title.text
        assert words in figure.layout.title.subtitle.text
    compared = ns.plot(ns.compare(path, path))
    assert "the body: without embeddings" in compared.layout.title.subtitle.text


def test_a_notebook_shows_the_scope(path):
    assert "norm of the body, by layer" in ns.series(path, by="layer")._repr_html_()
    assert "of the body" in ns.norm_budget(path, by="layer")._repr_html_()
    assert "groups of the body by layer" in ns.fit_groups(path).messages[0]


# -- exported files ------------------------------------------------------------------------


def rows_of(path):
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_the_rows_of_an_export_say_whether_they_are_in_the_body(path, tmp_path):
    rows = rows_of(ns.export(path, tmp_path / "weights.csv"))
    last = [row for row in rows if row["step"] == "2000"]
    for scope, kept in (("body", [r for r in last if r["in_body"] == "True"]), ("all", last)):
        norm = sum(float(row["sumsq"]) for row in kept) ** 0.5
        assert norm == pytest.approx(ns.series(path, scope=scope)[0].values[-1])
    assert {row["tensor"] for row in rows if row["in_body"] == "False"} == {"embed.weight"}


def test_an_exported_series_keeps_its_scope(path, tmp_path):
    target = ns.export(ns.series(path)[0], tmp_path / "norm.csv")
    assert target.read_text().splitlines()[0] == "step,norm,scope"
    assert rows_of(target)[0]["scope"] == "body"
    assert ns.series(target)[0].values.tolist() == pytest.approx(ns.series(path)[0].values.tolist())


# -- sweeps --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("sweep") / "grid", 5)


def cells_of(folder):
    with Run(folder / "sweep.db") as run:
        return run.artifacts("cell")


def change_body(folder, target, factor):
    """The same sweep with other norms of the body, so that no other number can stand in for them."""
    with Run.create(target / "sweep.db") as run, run.transaction():
        for key, cell in cells_of(folder).items():
            parts = {name: cell[name] for name in ("norm_start", "norm_end") if name in cell}
            body = {f"body_{name}": factor * value for name, value in parts.items() if value is not None}
            curves = dict(cell.get("curves") or {})
            if "norm" in curves:
                curves["body_norm"] = [[step, factor * norm] for step, norm in curves["norm"]]
            run.set_artifact("cell", key, {**cell, **body, "curves": curves})
    return target


def test_page_and_table_of_a_sweep_use_one_scope(grid, tmp_path):
    (tmp_path / "half").mkdir()
    folder = change_body(grid, tmp_path / "half", 0.25)
    page = sweep_page(folder, {})
    done = [cell for cell in cells_of(folder).values() if cell["status"] == "done"]
    best = min(done, key=lambda cell: cell["loss"])
    start, body, every = (number(best[name]) for name in ("body_norm_start", "body_norm_end", "norm_end"))
    said = " ".join(page.stages[0].summary)
    assert "norm of the body grew from" in said or "norm of the body shrank from" in said
    assert body in said and every not in said
    hovers = json.dumps([figure.traces for figure in page.figures], ensure_ascii=False)
    assert f"norm of the body {start} → {body}" in hovers
    details = next(figure.details for figure in page.figures if figure.details)
    assert all("norm of the body" in cell["says"] for cell in details.values() if "→" in cell["says"])
    (table,) = [t for section in page.stages[0].sections for t in section.tables if t.key == "cells"]
    assert {"norm of the body at the start", "norm of the body at the end"} <= set(table.columns)
    column = list(table.columns).index("norm of the body at the end")
    assert best["body_norm_end"] in [row[column] for row in table.rows]
    assert best["norm_end"] not in [value for row in table.rows for value in row]


def test_what_a_cell_of_a_sweep_has_not_is_empty_in_the_table(grid, tmp_path):
    key, cell = next((k, c) for k, c in cells_of(grid).items() if c["status"] == "done")
    kept = {name: value for name, value in cell.items() if name != "loss"}
    with Run.create(tmp_path / "sweep.db") as run, run.transaction():
        run.set_artifact("cell", key, cell)
        changes = {"optimizer": "ad\x1b[2Jam", "schedule": None, "lr": 0.25}
        run.set_artifact("cell", "other", {**kept, "changes": changes})
    page = sweep_page(tmp_path, {})
    (table,) = [t for section in page.stages[0].sections for t in section.tables if t.key == "cells"]
    shown = dict(zip(table.columns, next(row for row in table.rows if 0.25 in row), strict=True))
    assert (shown["schedule"], shown["loss"], shown["status"]) == (None, None, "done")
    assert shown["optimizer"] == printable("ad\x1b[2Jam") != "ad\x1b[2Jam"


def test_a_sweep_in_which_a_cell_has_no_body_is_shown_over_all_parameters(grid, tmp_path):
    folder = change_body(grid, tmp_path, 0.25)
    with Run(folder / "sweep.db", write=True) as run, run.transaction():
        key, cell = next((k, c) for k, c in run.artifacts("cell").items() if c["status"] == "done")
        run.set_artifact("cell", key, {k: v for k, v in cell.items() if not k.startswith("body_")})
    page = sweep_page(folder, {})
    assert "norm of all parameters" in page.stages[0].summary[0]
    (table,) = [t for section in page.stages[0].sections for t in section.tables if t.key == "cells"]
    assert "norm of all parameters at the end" in table.columns


def test_the_curves_of_a_sweep_are_those_of_the_body(grid, tmp_path):
    folder = change_body(grid, tmp_path, 0.25)
    rates = sorted({cell["lr"] for cell in cells_of(folder).values()})
    with Run.create(tmp_path / "line.db") as run, run.transaction():
        for key, cell in cells_of(folder).items():
            if cell["lr"] == rates[2] and cell["status"] == "done":
                run.set_artifact("cell", key, cell)
    (tmp_path / "line").mkdir()
    (tmp_path / "line.db").rename(tmp_path / "line" / "sweep.db")
    (figure,) = sweep_page(tmp_path / "line", {}).figures
    cell = next(iter(cells_of(tmp_path / "line").values()))
    assert (
        "norm of the body" in figure.title and "norm of the body" in figure.layout["yaxis"]["title"]["text"]
    )
    assert figure.traces[0]["y"][-1] == pytest.approx(cell["curves"]["body_norm"][-1][1], rel=1e-3)


def test_drawn_norms_are_those_of_the_scope_that_is_named(path, tmp_path):
    drawn = figures(report(path, tmp_path / "run.html"))
    points = next(trace for trace in drawn["s0-growth"]["traces"] if trace["name"] == "measured")
    assert "norm of the body" in points["hovertemplate"]
    assert points["y"][-1] == pytest.approx(float(ns.series(path, scope="body")[0].values[-1]), rel=1e-5)
