"""The same numbers as a scan of saved checkpoints; resuming; schedules by the clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_model
from torch import nn

from normscope.errors import UsageError
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.live.pace import Pace
from normscope.run import Run
from normscope.schedule import Budget, Schedule, at_steps, budget, every, logarithmic
from normscope.weights.scan.scan import scan
from tests.live.small_training import batches, rows, sgd, tiny, train


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_numbers_of_a_scan_of_the_checkpoints(tmp_path: Path, dtype: torch.dtype) -> None:
    model = tiny(dtype)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    folder = tmp_path / "checkpoints"
    saved = [0, 1, 2, 5, 6]
    with Monitor(model, optimizer, tmp_path / "live.db", schedule=every(1)):
        for step in range(7):
            if step:
                train(model, optimizer, step, first=step - 1)
            if step in saved:
                (folder / f"checkpoint-{step}").mkdir(parents=True)
                save_model(model, str(folder / f"checkpoint-{step}" / "model.safetensors"))
    scan(folder, tmp_path / "scan.db").close()
    live, scanned = rows(tmp_path / "live.db"), rows(tmp_path / "scan.db")
    names = {name for _, name in scanned} - {"table"}
    assert {"embedding.weight", "inner.weight", "frozen.bias", "never"} <= names | {"head.weight"}
    compared = 0
    for (step, name), row in scanned.items():
        mine = live.get((step, name)) or live.get((step, "embedding.weight"))
        if name == "table":
            continue
        assert mine["sumsq"] == pytest.approx(row["sumsq"], rel=1e-7)
        assert mine["nonfinite"] == row["nonfinite"]
        if row["prev_step"] == step - 1 >= 0:
            size = (row["sumsq"] * row["sumsq_delta"]) ** 0.5
            assert mine["dot"] == pytest.approx(row["dot"], rel=0, abs=1e-7 * size + 1e-300)
            assert mine["sumsq_delta"] == pytest.approx(row["sumsq_delta"], rel=1e-7)
            compared += 1
    assert compared == 3 * len(names)


def test_scan_and_monitor_share_a_run_file(tmp_path: Path) -> None:
    model = tiny()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        for step in range(5):
            if step:
                train(model, optimizer, step, first=step - 1)
            if step in (0, 2, 4):
                (tmp_path / "c" / f"checkpoint-{step}").mkdir(parents=True)
                save_model(model, str(tmp_path / "c" / f"checkpoint-{step}" / "model.safetensors"))
    scan(tmp_path / "c", tmp_path / "run.db").close()
    with Run(tmp_path / "run.db") as run:
        sql = (
            "SELECT prev_step, grad_sumsq FROM weight JOIN tensor ON id = tensor WHERE name = ? AND step = 4"
        )
        found = dict(run.query(sql, ("inner.weight",)))
    assert found.keys() == {2, 3}
    assert found[2] is None and found[3] > 0


def test_a_resumed_run_leaves_the_rows_of_an_undisturbed_one(tmp_path: Path) -> None:
    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = tiny()
        return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)

    model, optimizer = fresh()
    with Monitor(model, optimizer, tmp_path / "whole.db", schedule=logarithmic(10)):
        train(model, optimizer, 12)

    model, optimizer = fresh()
    with Monitor(model, optimizer, tmp_path / "two.db", schedule=logarithmic(10)) as monitor:
        train(model, optimizer, 4)
        state = [model.state_dict(), optimizer.state_dict(), monitor.state_dict()]
        torch.save(state, tmp_path / "checkpoint.pt")
        train(model, optimizer, 9, first=4)  # lost: these steps come again, with other data in between
        with torch.no_grad():
            model.inner.weight.mul_(3)
        train(model, optimizer, 10, first=9)

    model, optimizer = fresh()
    monitor = Monitor(model, optimizer, tmp_path / "two.db", schedule=logarithmic(10))
    for owner, kept in zip((model, optimizer, monitor), torch.load(tmp_path / "checkpoint.pt"), strict=True):
        owner.load_state_dict(kept)
    train(model, optimizer, 12, first=4)
    monitor.close()
    assert rows(tmp_path / "two.db") == rows(tmp_path / "whole.db")


def test_going_back_inside_one_process(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)) as monitor:
        train(model, optimizer, 6)
        monitor.load_state_dict({"step": 2})
        train(model, optimizer, 4, first=2)
        assert monitor.step == 4
    assert {step for step, _ in rows(tmp_path / "run.db")} == {0, 1, 2, 3, 4}


def test_starting_at_a_later_step(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", every(2), MonitorOptions(step=7)):
        train(model, optimizer, 3)
    assert {step for step, _ in rows(tmp_path / "run.db")} == {8, 10}


def steps_of(tmp_path: Path, schedule: Schedule | Budget, number: int) -> list[int]:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=schedule):
        train(model, optimizer, number)
    return sorted({step for step, _ in rows(tmp_path / "run.db")})


def test_recorded_steps_are_those_of_the_schedule(tmp_path: Path) -> None:
    for schedule in (every(3), logarithmic(5), at_steps([2, 5])):
        folder = tmp_path / str(schedule)
        folder.mkdir()
        assert steps_of(folder, schedule, 9) == schedule.steps(9)


def test_a_budget_keeps_to_its_share_whatever_a_step_costs() -> None:
    assert budget("1%") == budget(0.01) == Budget(0.01)
    assert budget("2%").interval(cost=0.1, step_time=1.0) == 5
    assert budget("1%").interval(cost=0.0, step_time=1.0) == 1
    for share in (0.001, 0.01, 0.3):
        for cost in (1e-4, 0.02, 3.0):
            interval = Budget(share).interval(cost, 0.05)
            assert cost <= share * interval * 0.05 * (1 + 1e-9)
            assert interval == 1 or cost > share * (interval - 1) * 0.05
    for wrong in ("much", "0%", 2.0):
        with pytest.raises(UsageError, match="budget"):
            budget(wrong)


def test_a_budget_adjusts_itself_to_the_run() -> None:
    pace = Pace(budget("10%"))
    assert pace.due(0)
    pace.learn(0, cost=1.0, elapsed=1.0)
    assert pace.due(1)
    pace.learn(1, cost=1.0, elapsed=2.0)  # a step takes 1 s, a record 1 s: every tenth step
    assert next(step for step in range(2, 13) if pace.due(step)) == 11
    pace.learn(11, cost=1.0, elapsed=101.0)  # now a step takes 10 s: every step
    assert pace.due(12)


def test_a_budget_of_a_resumed_run_counts_only_its_own_steps() -> None:
    pace = Pace(budget("10%"), step=1000)
    assert pace.due(1001)
    pace.learn(1001, cost=1.0, elapsed=2.0)  # one step was made, and took 1 s
    assert next(step for step in range(1002, 1020) if pace.due(step)) == 1011


def test_a_budget_in_a_real_run(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=budget("5%")):
        for tokens in batches(40):
            optimizer.zero_grad()
            model(tokens).backward()
            time.sleep(0.002)
            optimizer.step()
    found = {step for step, _ in rows(tmp_path / "run.db")}
    assert {0, 1} <= found and len(found) < 40
