"""Measures of plugins in the report: recorded per tensor, drawn by layer."""

from __future__ import annotations

import numpy as np
import pytest

from normscope.run import MeasureRow, Run
from normscope.views.reports.report import report, run_page

from .pages import figures
from .runs import write_walk

STEPS = [0, 10, 20]


@pytest.fixture
def measured_run(tmp_path):
    """Two layers; the plugin's value of a matrix is its step plus its tensor's id, and vectors have none."""
    path = write_walk(tmp_path / "run.db", STEPS, layers=2)
    with Run(path, write=True) as run, run.transaction():
        run.write(
            MeasureRow(step, tensor.id, "stable <rank>", float(step + tensor.id))
            for tensor in run.tensors()
            for step in STEPS
            if len(tensor.shape) == 2
        )
    return path


def test_a_plugin_measure_has_a_figure_by_layer(measured_run, tmp_path):
    spec = figures(report(measured_run, tmp_path / "run.html"))["s0-measure-stable <rank>"]
    lines = {trace["name"]: trace for trace in spec["traces"] if trace["x"] != [None]}
    with Run(measured_run) as run:
        ids = {
            f"{layer:02d}": [t.id for t in run.tensors() if t.layer == layer and len(t.shape) == 2]
            for layer in (0, 1)
        }
    assert set(lines) == {"00", "01"}
    for layer, line in lines.items():
        assert line["x"] == STEPS
        assert np.allclose(line["y"], np.add(STEPS, np.mean(ids[layer])), rtol=1e-5)
    assert spec["layout"]["yaxis"]["title"]["text"] == "stable &lt;rank&gt; of the body"


def test_the_section_comes_before_training(measured_run):
    with Run(measured_run) as run:
        sections = run_page(run).stages[0].sections
    (section,) = (part for part in sections if part.key == "measures")
    assert section.title == "Measures of plugins"
    keys = [part.key for part in sections]
    assert keys.index("measures") < keys.index("training")


def test_a_stage_without_a_value_says_so(tmp_path):
    path = write_walk(tmp_path / "run.db", STEPS, layers=1, stage="first")
    write_walk(path, STEPS, layers=1, stage="second", seed=1)
    with Run(path, write=True) as run, run.transaction():
        matrix = next(tensor for tensor in run.tensors() if tensor.role == "q")
        run.write([MeasureRow(step, matrix.id, "rank", 1.0, "first") for step in STEPS])
    with Run(path) as run:
        first, second = (
            next(part for part in stage.sections if part.key == "measures") for stage in run_page(run).stages
        )
    assert [figure.key for figure in first.figures] == ["measure-rank"]
    assert (second.sentences, second.figures) == (["No value in this stage: rank."], [])


def test_a_run_without_plugin_measures_has_no_such_section(run_path):
    with Run(run_path) as run:
        assert "measures" not in {part.key for part in run_page(run).stages[0].sections}
