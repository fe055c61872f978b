"""An export contains every row, in every format."""

import csv

import pytest

import normscope as ns
from normscope.errors import UsageError
from normscope.run import Run, TensorRow, WeightRow
from normscope.views.export_file import COLUMNS, export, weight_table
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series


@pytest.fixture
def path(tmp_path, series_folder):
    scan(series_folder, tmp_path / "run.db").close()
    return tmp_path / "run.db"


def test_csv_keeps_every_digit(path, tmp_path):
    export(path, tmp_path / "weights.csv")
    with (tmp_path / "weights.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with Run(path) as run:
        table = list(weight_table(run))
    assert tuple(rows[0]) == COLUMNS
    assert [float(row["sumsq"]) for row in rows] == [row["sumsq"] for row in table]
    assert rows[0]["prev_step"] == ""


def test_parquet(path, tmp_path):
    polars = pytest.importorskip("polars")
    export(path, tmp_path / "weights.parquet")
    frame = polars.read_parquet(tmp_path / "weights.parquet")
    with Run(path) as run:
        assert frame["sumsq"].to_list() == list(weight_table(run)["sumsq"])
    assert tuple(frame.columns) == COLUMNS


def test_a_name_that_looks_like_a_formula_is_quoted(tmp_path):
    with Run.create(tmp_path / "run.db") as run, run.transaction():
        run.add_tensors([TensorRow(1, "=1+1", "model", 0, "other", (2,), "float32", 2)])
        run.write([WeightRow(0, -1, 1, 4.0)])
    export(tmp_path / "run.db", tmp_path / "w.csv")
    assert "'=1+1" in (tmp_path / "w.csv").read_text()


def test_an_unknown_ending(path, tmp_path):
    with pytest.raises(UsageError, match="must end in .csv or .parquet"):
        export(path, tmp_path / "weights.xlsx")


def test_no_half_written_file(path, tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        export(path, tmp_path / "nowhere" / "weights.csv")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["name", "csv", "arrays"])
def test_series_without_tensors(kind, tmp_path):
    (tmp_path / "log.csv").write_text("step,norm\n0,1.5\n10,2.5\n")
    source = {"name": "t5-base", "csv": tmp_path / "log.csv", "arrays": ([0, 10], [1.5, 2.5])}[kind]
    lines = export(source, tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == ("step,value" if kind == "arrays" else "step,norm")
    assert len(lines) == (105 if kind == "name" else 3)
    assert kind == "name" or lines[1:] == ["0,1.5", "10,2.5"]


def test_a_head_that_is_stored_twice_is_exported_once(tmp_path):
    """Its rows add up to the norm of all parameters."""
    states = random_walk([0, 10, 20], shapes={"wte.weight": (12, 4), "h.0.mlp.c_fc.weight": (4, 4)})
    states = {step: state | {"lm_head.weight": state["wte.weight"].clone()} for step, state in states.items()}
    with ns.scan(save_series(tmp_path / "series", states), tmp_path / "run.db") as run:
        table = weight_table(run)
        whole = ns.series(run, "norm", scope="all")[0].values[-1]
    rows = zip(table.columns["step"], table.columns["sumsq"], strict=True)
    assert sum(sumsq for step, sumsq in rows if step == 20) == pytest.approx(whole**2)
