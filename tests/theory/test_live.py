"""The live state against the rows it is made of."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import normscope as ns
from normscope.cli.app import main
from normscope.errors import RunFileError, UsageError
from normscope.live.monitor import Monitor
from normscope.rows import ScalarRow
from normscope.run import Run
from normscope.schedule import every
from normscope.theory.measures.live_status import live_state
from normscope.theory.measures.measures import group
from normscope.weights.scan.scan import scan
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


def scanned(folder: Path, run: Path, saved: dict[int, dict[str, torch.Tensor]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for step, state in saved.items():
        torch.save(state, folder / f"step-{step}.pt")
    scan(folder, run)


def states(*factors: float) -> list[dict[str, torch.Tensor]]:
    """The parameters of a small model, scaled."""
    return [{name: f * value for name, value in blocks().state_dict().items()} for f in factors]


def test_a_scanned_file_shows_its_newest_checkpoint(tmp_path: Path) -> None:
    saved = dict(zip((8, 16, 400), states(1.0, 2.0, 5.0), strict=True))
    scanned(tmp_path / "saved", tmp_path / "run.db", saved)
    with Run(tmp_path / "run.db") as opened:
        state = live_state(opened, scope="all")
    assert (state.step, state.previous, state.source, state.records) == (400, 16, "scan", 3)
    first = math.sqrt(sum(float(value.double().pow(2).sum()) for value in saved[8].values()))
    total = state.groups[0]
    assert [total.norm, total.update] == pytest.approx([5 * first, 3 * first])
    assert total.exponent == pytest.approx(math.log(2.5) / math.log(25)) and total.gradient is None
    text = watched(tmp_path / "run.db")
    assert text.startswith("checkpoint of step 400, changes since step 16 · norm of the body")
    assert " · 3 checkpoints" in text


def test_a_file_of_both_shows_whichever_is_newer(tmp_path: Path) -> None:
    path, net = tmp_path / "run.db", blocks()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    saved = {}
    with Monitor(net, optimizer, path, schedule=every(1)):
        for step in range(1, 7):
            train_blocks(net, optimizer, 1)
            if step in (2, 4):
                saved[step] = {name: value.clone() for name, value in net.state_dict().items()}
    scanned(tmp_path / "saved", path, saved)
    with Run(path) as opened:
        state = live_state(opened, scope="all")
        expected = opened.query("SELECT SUM(sumsq), SUM(sumsq_delta) FROM weight WHERE step = 6")[0]
    assert (state.step, state.previous, state.source, state.records) == (6, 5, "monitor", 7)
    assert [state.groups[0].norm ** 2, state.groups[0].update ** 2] == pytest.approx(expected)
    later = {name: 3 * value for name, value in saved[4].items()}
    scanned(tmp_path / "saved", path, {9: later})
    with Run(path) as opened:
        state = live_state(opened, scope="all")
    assert (state.step, state.previous, state.source) == (9, 4, "scan")
    squares = sum(float(value.double().pow(2).sum()) for value in later.values())
    assert state.norm_all**2 == pytest.approx(squares)


def test_the_last_stage_is_shown_and_named(tmp_path: Path) -> None:
    for stage, factor in (("stage1", 1.0), ("stage2", 2.0)):
        for step, state in zip((10, 20), states(factor, 2 * factor), strict=True):
            folder = tmp_path / "saved" / f"{stage}-step{step}"
            folder.mkdir(parents=True)
            torch.save(state, folder / "pytorch_model.bin")
    scan(tmp_path / "saved", tmp_path / "run.db")
    with Run(tmp_path / "run.db") as opened:
        found = live_state(opened)
        assert (found.stage, found.step) == (opened.stages()[-1], 20)
    assert watched(tmp_path / "run.db").startswith(f"stage {found.stage}, checkpoint of step 20")


def test_a_run_that_became_nan_shows_nan_and_how_many_values(tmp_path: Path) -> None:
    path, net = tmp_path / "run.db", blocks()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with Monitor(net, optimizer, path, schedule=every(1)) as monitor:
        train_blocks(net, optimizer, 3)
        monitor.log(loss=2.5)
        with torch.no_grad():
            net["layers"][1].linear1.weight[0, :5] = float("nan")
        train_blocks(net, optimizer, 1)
        monitor.log(loss=float("nan"))
    with Run(path) as opened:
        state = live_state(opened)
        wrong = opened.query("SELECT SUM(nonfinite) FROM weight WHERE step = 4")[0][0]
    assert state.step == 4 and wrong >= 5 and math.isnan(state.scalars["loss"])
    groups = {group.group: group for group in state.groups}
    assert math.isnan(groups["total"].norm) and math.isnan(groups["01"].norm) and math.isnan(state.norm_all)
    text = watched(path)
    assert text.startswith("step 4 · norm of the body NaN · ")
    assert " values are NaN or infinite · loss NaN" in text and "2.5" not in text.splitlines()[0]


def test_a_group_that_became_zero_grows_by_no_power(tmp_path: Path) -> None:
    net = blocks()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with Monitor(net, optimizer, tmp_path / "run.db", schedule=every(1)):
        train_blocks(net, optimizer, 3)
        with torch.no_grad():
            for parameter in net["layers"][1].parameters():
                parameter.zero_()
        optimizer.param_groups[0]["lr"] = 0.0
        train_blocks(net, optimizer, 1)
    with Run(tmp_path / "run.db") as opened:
        groups = {group.group: group for group in live_state(opened).groups}
    assert (groups["01"].norm, groups["01"].exponent) == (0, None) and groups["00"].exponent is not None


def watched(run: Path) -> str:
    code = "from normscope.cli.watch import watch; import typer; typer.run(watch)"
    command = [sys.executable, "-c", code, str(run)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"}
    )
    return done.stdout


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_terminal_the_state_follows_the_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on while the command waits; the user stops it at the second wait."""
    path, waits = shutil.copy(run, tmp_path / "run.db"), []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        with Run(path, write=True) as opened, opened.transaction():
            opened.write([ScalarRow(8, "loss", 1.25)])

    monkeypatch.setattr("time.sleep", wait)
    monkeypatch.setattr(sys, "argv", ["normscope", "watch", str(path), "--every", "7"])
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    first, later = (terminal.getvalue().find(f"loss {value} ") for value in (2.5, 1.25))
    assert 0 <= first < later and waits == [7, 7] and ended.value.code == 0


def test_a_norm_of_nan_parameters_is_no_number(tmp_path):
    """The sums leave NaN out: a training that became NaN had a norm of 0, and a law was fitted to it."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1)):
        for step in range(8):
            model(torch.ones(2, 4)).square().mean().mul(float("nan") if step == 6 else 1.0).backward()
            optimizer.step()
            optimizer.zero_grad()
    with ns.Run(tmp_path / "run.db") as run:
        grouped = group(run, by="tensor", scope="all")
        assert np.isnan(grouped.measure("norm")[7:]).all() and np.isfinite(grouped.measure("norm")[:7]).all()
        assert np.isnan(grouped.measure("update")[7:]).all() and (grouped.measure("nonfinite")[7:] > 0).all()
        (norms,) = ns.series(run, scope="all")
        assert norms.steps.tolist() == list(range(7)) and (norms.values > 0).all()
        assert "NaN or infinite at 2 steps (the first is 7)" in norms.notes[0]
