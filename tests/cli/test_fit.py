import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from normscope.cli.fit import fit
from normscope.errors import SeriesError
from tests.theory.make_run import make_run

runner = CliRunner()


@pytest.fixture
def app():
    app = typer.Typer()
    app.command("fit")(fit)
    return app


def test_reference_series_needs_no_file(app):
    result = runner.invoke(app, ["t5-base"])
    assert result.exit_code == 0
    assert "0.99856" in result.stdout and "p = 0.559" in result.stdout


def test_json_is_the_stable_document(app):
    document = json.loads(runner.invoke(app, ["t5-base", "--json"]).stdout)
    laws = {law["name"]: law for law in document["laws"]}
    assert laws["sqrt"]["r2"] == pytest.approx(0.99856, abs=5e-6)
    assert document["exponent"]["value"] == pytest.approx(0.559, abs=5e-4)


def test_csv_and_run_file_by_layer(app, tmp_path):
    steps = np.arange(0, 5000, 100)
    path = tmp_path / "s.csv"
    path.write_text("step,loss\n" + "".join(f"{s},{10 - s**0.2}\n" for s in steps))
    assert runner.invoke(app, [str(path), "--column", "loss"]).exit_code == 0
    make_run(tmp_path / "run.db")
    result = runner.invoke(app, [str(tmp_path / "run.db"), "--by", "layer"])
    assert result.exit_code == 0 and "2 groups of the body by layer" in result.stdout
    document = json.loads(runner.invoke(app, [str(tmp_path / "run.db"), "--by", "role", "--json"]).stdout)
    assert {"by", "measure", "groups", "fits", "failed", "sentences"} <= set(document)


def test_two_points_are_one_sentence(app, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("step,norm\n0,1\n10,2\n")
    result = runner.invoke(app, [str(path)])
    assert isinstance(result.exception, SeriesError) and "at least 3" in str(result.exception)
