"""The live state against the rows it is made of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from normscope.errors import RunFileError, UsageError
from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.schedule import every
from normscope.theory.measures.live_status import live_state
from tests.live.small_training import blocks, train_blocks


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "run.db"
    net = blocks()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with Monitor(net, optimizer, path, schedule=every(1)) as monitor:
        train_blocks(net, optimizer, 8)
        monitor.log(loss=2.5)
    return path


def test_groups_add_up_to_the_rows(run: Path) -> None:
    with Run(run) as opened:
        state = live_state(opened, scope="all")
        sums = opened.query(
            "SELECT SUM(sumsq), SUM(sumsq_delta), SUM(grad_sumsq) FROM weight WHERE step = 8"
        )[0]
        then = opened.query("SELECT SUM(sumsq) FROM weight WHERE step = 4")[0][0]
    total, *groups = state.groups
    assert (state.step, state.records, state.scalars) == (8, 9, {"loss": 2.5})
    assert [total.norm**2, total.update**2, total.gradient**2] == pytest.approx(sums)
    assert sum(group.norm**2 for group in groups) == pytest.approx(total.norm**2)
    assert total.norm == pytest.approx(then**0.5 * 2**total.exponent)
    assert -1 <= total.alignment <= 1
    assert [group.group for group in groups] == ["00", "01", "02", "03", "outside"]


def test_what_cannot_be_shown_is_named(run: Path, tmp_path: Path) -> None:
    with Run(run) as opened, pytest.raises(UsageError, match="cannot group by"):
        live_state(opened, by="colour")
    Run.create(tmp_path / "empty.db").close()
    with Run(tmp_path / "empty.db") as opened, pytest.raises(RunFileError, match="no record of a live run"):
        live_state(opened)


def test_the_command(run: Path) -> None:
    def call(*options: str) -> str:
        code = "from normscope.cli.watch import watch; import typer; typer.run(watch)"
        command = [sys.executable, "-c", code, str(run), *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    text = call()
    assert text.startswith("step 8 · norm of the body ") and " · loss 2.5 · 9 records" in text
    assert "total" in text and "03" in text
    state = json.loads(call("--json", "--by", "role"))
    assert state["step"] == 8 and state["groups"][0]["group"] == "total"
