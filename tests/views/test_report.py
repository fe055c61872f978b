"""What a report file contains, and that it is written completely or not at all."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import numpy as np
import pytest

from normscope.errors import NormscopeError, RunFileError, SeriesError, UsageError
from normscope.run import Run, TensorRow, WeightRow
from normscope.theory.advice.advise import advise
from normscope.theory.laws.growth import fit_growth
from normscope.theory.measures.measures import group
from normscope.theory.measures.time_series import Series
from normscope.views.figures.groups import series_figure
from normscope.views.page import palette
from normscope.views.page.page import render
from normscope.views.reports.report import report, run_page

from .pages import figures, unpacked
from .runs import write_walk


@pytest.fixture(scope="module")
def page(run_path):
    with Run(run_path) as run:
        return run_page(run)


def test_sections_follow_the_data(page):
    (stage,) = page.stages
    keys = ["advice", "growth", "groups", "direction", "budget", "forecast", "training", "tables"]
    assert [s.key for s in stage.sections] == keys
    assert {f.key for f in page.figures} >= {"growth", "layers", "roles", "cosine", "alignment", "budget"}


def test_the_advice_is_that_of_the_library(page, run_path):
    found, section = advise(run_path), page.stages[0].sections[0]
    assert [line.sentence for line in section.advice] == list(found.sentences)
    assert [line.severity for line in section.advice] == [each.severity for each in found]
    assert section.note == " ".join(found.unknown)
    assert html.escape(found.sentences[0]) in html.escape(html.unescape(render(page)))


def test_summary_names_both_ends_and_the_law(page, run_path):
    fit = fit_growth(run_path)
    stage = page.stages[0]
    assert "step 0" in stage.summary[0] and "step 20,000" in stage.summary[0]
    assert any(fit.best in sentence for sentence in stage.summary)
    values = {fact.label: fact.value for fact in stage.facts}
    assert values["Free exponent of the body"] == f"{fit.exponent.value:.3f}"


def test_drawn_norms_are_the_measured_ones(written, run_path):
    with Run(run_path) as run:
        total, layers = group(run), group(run, by="layer")
    drawn = figures(written)
    points = next(t for t in drawn["s0-growth"]["traces"] if t["name"] == "measured")
    assert points["x"] == total.steps.tolist()
    assert np.allclose(points["y"], total.measure("norm")[:, 0], rtol=1e-5)
    lines = [t for t in drawn["s0-layers"]["traces"] if t.get("set") == "norm"]
    squares = np.sum([np.square(t["y"]) for t in lines], axis=0)
    assert np.allclose(np.sqrt(squares), points["y"], rtol=1e-5)  # the layers make up the whole body
    assert len(lines) == len(layers.groups)


def test_layers_have_the_colours_of_the_colour_bar():
    places = {"decoder/01": 0.5, "encoder/00": 0.0, "encoder/02": 1.0}
    series = [Series(name, [0, 10], [1.0, 2.0]) for name in (*places, "outside")]
    *lines, bar = series_figure(series, "norm", "layer").traces
    colours = {line["name"]: line["line"]["color"] for line in lines}
    assert colours.pop("outside") == palette.MUTED
    assert colours == {name: f"@sequence:{place:.4f}" for name, place in places.items()}
    assert (bar["marker"]["cmin"], bar["marker"]["cmax"]) == (0, 2)


def test_budget_bars_add_up_to_the_growth_of_the_squared_norm(written):
    drawn = figures(written)
    radial, diffusive, growth = drawn["s0-budget"]["traces"]
    points = next(t for t in drawn["s0-growth"]["traces"] if t["name"] == "measured")
    assert np.allclose(np.add(radial["y"], diffusive["y"]), growth["y"], rtol=1e-4)
    assert np.allclose(np.diff(np.square(points["y"])), growth["y"], rtol=1e-2, atol=1e-2)


def test_provenance_and_what_was_left_out_are_stated(written):
    text = written.read_text("utf-8")
    for expected in (
        "normscope scan checkpoints/",
        "torch 2.13.0",
        "a mask, not a parameter",
        "Unknown names",
    ):
        assert expected in text


def test_the_file_refers_to_nothing_outside_itself(written):
    text = written.read_text("utf-8")
    packed = re.findall(r'<script type="text/plain" id="(\w+)">([^<]*)</script>', text)
    shown = re.sub(r'<script type="text/plain".*?</script>|http-equiv', "", text)
    data = {key: unpacked(part) for key, part in packed if key != "plotly"}
    assert list(data) == ["figures", "scripts"]
    assert all("http" not in part for part in [shown, *data.values()])
    assert "default-src 'none'" in html.unescape(text)


def test_a_page_is_small(written):
    assert written.stat().st_size < 2e6


def test_the_same_run_gives_the_same_figures(tmp_path):
    run = write_walk(tmp_path / "run.db", [0, 10, 20, 40], layers=2)
    once, again = (figures(report(run, tmp_path / name)) for name in ("once.html", "again.html"))
    assert once == again


def test_one_checkpoint_works_and_has_no_law(tmp_path):
    path = report(write_walk(tmp_path / "one.db", [100], layers=3), tmp_path / "one.html")
    drawn = figures(path)
    assert {key for key in drawn if not key.startswith("s0-scalar")} == {"s0-layers", "s0-roles"}
    text = path.read_text("utf-8")
    assert "the only checkpoint" in text and "Where the norm is" in text
    assert "at the start" not in text and "at the end" not in text  # there are no two ends


def test_two_checkpoints_have_a_direction_and_no_law(tmp_path):
    drawn = figures(report(write_walk(tmp_path / "two.db", [0, 100], layers=2), tmp_path / "two.html"))
    assert len(drawn["s0-growth"]["traces"]) == 1
    assert "s0-cosine" in drawn and "s0-budget" in drawn


def test_the_page_counts_checkpoints_or_the_steps_that_a_monitor_recorded(tmp_path):
    write_walk(tmp_path / "run.db", [0, 100, 200], layers=2)
    with Run(tmp_path / "run.db", write=True) as run:
        scanned = run_page(run).subtitle
        with run.transaction():
            run.delete_rows("checkpoint", "1 = 1")
        recorded = run_page(run).subtitle
    assert scanned.startswith("3 checkpoints · ") and recorded.startswith("3 recorded steps · ")
    assert scanned.partition(" · ")[2] == recorded.partition(" · ")[2]


def test_each_stage_has_its_own_part(tmp_path):
    run = tmp_path / "staged.db"
    write_walk(run, [0, 100, 200], layers=2, stage="first")
    write_walk(run, [0, 10, 20], layers=2, stage="second", seed=1)
    drawn = figures(report(run, tmp_path / "staged.html"))
    assert drawn["s0-growth"]["traces"][-1]["x"][-1] != drawn["s1-growth"]["traces"][-1]["x"][-1]


def test_nan_in_the_weights_is_reported(tmp_path):
    run = tmp_path / "nan.db"
    with Run.create(run) as db, db.transaction():
        db.add_tensors([TensorRow(0, "w", "model", None, "other", (2,), "float32", 2)])
        db.write([WeightRow(step, -1, 0, 1.0 + step, nonfinite=3 * (step == 2)) for step in range(4)])
    assert "NaN or infinite" in report(run, tmp_path / "nan.html").read_text("utf-8")


def test_reference_and_csv_series_have_reports_too(tmp_path):
    drawn = figures(report("t5-base", tmp_path / "t5.html"))
    assert {t["name"] for t in drawn["s0-growth"]["traces"]} >= {
        "measured",
        "a·√t + b",
        "a·tᵖ + b",
        "a·∜t + b",
    }
    table = tmp_path / "mine.csv"
    table.write_text("step,norm\n" + "".join(f"{s},{s**0.5 + 3}\n" for s in range(0, 900, 50)))
    assert figures(report(table, tmp_path / "mine.html"))["s0-growth"]


@pytest.mark.parametrize("steps", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_large_run_stays_small(tmp_path, steps):
    layers = 300
    norms = 5 + np.cumsum(np.random.default_rng(0).random((steps, layers)), axis=0)
    with Run.create(tmp_path / "large.db") as run, run.transaction():
        for layer in range(layers):
            run.add_tensors(
                [TensorRow(layer, f"layers.{layer}.w", "model", layer, "other", (4,), "float32", 4)]
            )
        run.write(
            WeightRow(step, step - 1, layer, norms[step, layer], 0.0, 0.5)
            for step in range(steps)
            for layer in range(layers)
        )
    path = report(tmp_path / "large.db", tmp_path / "large.html")
    lines = {t["name"] for t in figures(path)["s0-layers"]["traces"] if "set" in t}
    assert path.stat().st_size < 2.05e6
    assert len(lines) == 40 and {"00", "299"} <= lines


def test_an_empty_run_says_what_to_do(tmp_path):
    Run.create(tmp_path / "empty.db").close()
    with pytest.raises(NormscopeError, match="normscope scan"):
        report(tmp_path / "empty.db", tmp_path / "x.html")


def test_bad_sources_are_refused_with_a_sentence(tmp_path):
    (tmp_path / "noise.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(SeriesError, match="noise.db is not a run file, nor a CSV file"):
        report(tmp_path / "noise.db", tmp_path / "x.html")
    with pytest.raises(UsageError, match="missing.db does not exist; expected a run file"):
        report(tmp_path / "missing.db", tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_the_run_file_is_never_overwritten(run_path):
    before = run_path.read_bytes()
    with pytest.raises(UsageError, match="overwrite"):
        report(run_path, run_path)
    assert run_path.read_bytes() == before


def test_paths_that_cannot_be_written_are_refused(run_path, tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        report(run_path, tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        report(run_path, tmp_path / "missing" / "report.html")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    """/proc lets even root create nothing."""
    with pytest.raises(RunFileError, match="cannot write"):
        report("t5-base", "/proc/report.html")


def test_a_full_disk_leaves_no_file_and_keeps_the_old_one(run_path, tmp_path):
    """A limit on the file size stands in for a full disk: the write fails half-way with an OSError."""
    target = tmp_path / "report.html"
    target.write_text("the old report")
    code = (
        "import resource, signal, sys; from normscope.views.reports.report import report\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))\n"
        "try:\n    report(sys.argv[1], sys.argv[2])\nexcept Exception as e:\n    print(type(e).__name__, e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, run_path, target], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("RunFileError cannot write the report")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == "the old report"
