"""normscope sweep, as a user calls it."""

import pytest

from tests.cli.calling import SMALL, call, call_json


def test_sweep_over_a_grid_and_a_list(tmp_path):
    options = ["--lr", "1e-3:1e-2:2", "--vary", "norm=pre", "--steps", "5", "--engine", "local:1", *SMALL]
    done = call("sweep", *options, "-o", tmp_path / "grid")
    assert "2 cells: 2 done" in done.stdout
    (tmp_path / "cells.json").write_text('[{"lr": 1e-3, "norm": "pre"}, {"lr": 0.01, "norm": "pre"}]')
    rest = ["--steps", "5", *SMALL, "-o", tmp_path / "grid"]
    cells = call_json("sweep", "--cells", tmp_path / "cells.json", *rest)
    assert [cell["changes"] for cell in cells] == [{"lr": 1e-3, "norm": "pre"}, {"lr": 0.01, "norm": "pre"}]
    assert all(cell["status"] == "done" for cell in cells)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to sweep"),
        (["--vary", "norm"], "takes FIELD=VALUE, such as --vary norm=pre,post"),
        (["--vary", "nrom=pre"], "did you mean 'norm'"),
        (["--lr", "1:2"], "such as 1e-5:1e-1:5"),
        (["--lr", "1e-3", "--engine", "slurm"], "an engine is processes"),
        (["--lr", "1e-3", "--seeds", "random"], "same or own"),
        (["--cells", "none.json"], "cannot read the cells"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, options, words):
    done = call("sweep", *options, "-o", tmp_path / "out")
    assert done.code == 2
    assert words in done.stderr and done.stderr.count("\n") == 1
