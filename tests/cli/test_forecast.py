import json

import pytest
import typer
from typer.testing import CliRunner

from normscope.cli.compare import compare
from normscope.cli.forecast import forecast
from normscope.run import HeadRow, Run
from tests.theory.make_run import make_run

runner = CliRunner()


@pytest.fixture
def app():
    app = typer.Typer()
    app.command("forecast")(forecast)
    app.command("compare")(compare)
    return app


def test_forecast_prints_sentences_and_a_table(app):
    result = runner.invoke(app, ["forecast", "t5-base", "--to", "1000000"])
    assert result.exit_code == 0
    assert "is expected at" in result.stdout and "95 % interval" in result.stdout


def test_forecast_json_has_every_documented_field(app):
    arguments = ["forecast", "t5-base", "--to", "600000", "--lr", "0.01", "--weight-decay", "0.001"]
    document = json.loads(runner.invoke(app, [*arguments, "--schedule", "cosine", "--json"]).stdout)
    assert {"series", "now", "to", "value", "low", "high", "method", "laws", "equilibrium", "curve"} <= set(
        document
    )
    assert document["method"] == "dynamics" and set(document["curve"][0]) == {"step", "value", "low", "high"}


def test_compare_prints_and_serialises(app, tmp_path):
    make_run(tmp_path / "a.db")
    make_run(tmp_path / "b.db", exponents=(0.5, 0.7, 0.5, 0.8))
    pair = [str(tmp_path / "a.db"), str(tmp_path / "b.db")]
    result = runner.invoke(app, ["compare", *pair, "--by", "layer"])
    assert result.exit_code == 0 and "1 of 2 groups of the body by layer differ" in result.stdout
    document = json.loads(runner.invoke(app, ["compare", *pair, "--json"]).stdout)
    assert {"a", "b", "by", "groups", "sentences", "only_a", "only_b"} <= set(document)
    assert document["head_changes"] is None


def test_runs_with_other_heads_are_still_compared_by_their_norms(app, tmp_path):
    for name, module in (("a.db", "encoder.0.attn"), ("b.db", "decoder.0.attn")):
        make_run(tmp_path / name)
        with Run(tmp_path / name, write=True) as run, run.transaction():
            run.write([HeadRow(0, module, 1, 0, "mean", 0.1, 1.0, 0.0, 0.0, 0.2, 3.0, 0.6, 2.0, 0.1)])
    pair = [str(tmp_path / "a.db"), str(tmp_path / "b.db")]
    document = json.loads(runner.invoke(app, ["compare", *pair, "--json"]).stdout)
    assert document["groups"] and document["head_changes"] is None
    document = json.loads(runner.invoke(app, ["compare", pair[0], pair[0], "--json"]).stdout)
    assert document["groups"] and document["head_changes"]["same"] == 1
