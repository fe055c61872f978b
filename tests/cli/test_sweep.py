"""normscope sweep, as a user calls it."""

import json

import pytest
from typer.testing import CliRunner

from normscope.cli.app import build
from normscope.errors import UsageError

FIELDS = ("d_model=16", "n_layers=1", "d_ff=16", "n_heads=2", "eval_batches=1")
SMALL = ["--batch", "2", *(word for field in FIELDS for word in ("--set", field))]


def normscope(*words):
    done = CliRunner().invoke(build(), list(map(str, words)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_sweep_over_a_grid_and_a_list(tmp_path):
    options = ["--lr", "1e-3:1e-2:2", "--vary", "norm=pre", "--steps", "5", "--engine", "local:1", *SMALL]
    done = normscope("sweep", *options, "-o", tmp_path / "grid")
    assert "2 cells: 2 done" in done.stdout
    (tmp_path / "cells.json").write_text('[{"lr": 1e-3, "norm": "pre"}, {"lr": 0.01, "norm": "pre"}]')
    rest = ["--steps", "5", *SMALL, "-o", tmp_path / "grid", "--json"]
    cells = json.loads(normscope("sweep", "--cells", tmp_path / "cells.json", *rest).stdout)
    assert [cell["changes"] for cell in cells] == [{"lr": 1e-3, "norm": "pre"}, {"lr": 0.01, "norm": "pre"}]
    assert all(cell["status"] == "done" for cell in cells)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to sweep"),
        (["--vary", "norm"], "FIELD=VALUES"),
        (["--vary", "nrom=pre"], "did you mean 'norm'"),
        (["--lr", "1:2"], "such as 1e-5:1e-1:5"),
        (["--lr", "1e-3", "--engine", "slurm"], "an engine is local"),
        (["--lr", "1e-3", "--seeds", "random"], "same or own"),
        (["--cells", "none.json"], "cannot read the cells"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        normscope("sweep", *options, "-o", tmp_path / "out")
