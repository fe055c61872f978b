"""Live rows have the columns of scanned ones: the largest value, and ⟨θ₀, θ⟩."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.schedule import at_steps, every
from tests.live.small_training import batches, monitored, sgd, tiny, train


def columns(path: Path) -> dict[tuple[int, str], tuple[float | None, float | None]]:
    sql = "SELECT step, name, dot_init, absmax FROM weight JOIN tensor ON tensor.id = weight.tensor"
    with Run(path) as run:
        return {(step, name): (init, largest) for step, name, init, largest in run.query(sql)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_value_and_the_product_with_the_first(tmp_path: Path, dtype: torch.dtype) -> None:
    model = tiny(dtype)
    optimizer = sgd(model)
    start = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    expected = {}
    with Monitor(model, optimizer, tmp_path / "run.db", at_steps([0, 2, 3])):
        for step, tokens in enumerate(batches(3), start=1):
            model(tokens).backward()
            optimizer.step()
            for name, p in model.named_parameters():
                now = p.detach().double()
                expected[step, name] = float((start[name] * now).sum()), float(now.abs().max())
    found = columns(tmp_path / "run.db")
    assert {step for step, _ in found} == {0, 2, 3}
    for key, row in found.items():
        if key[0]:
            assert row == pytest.approx(expected[key], rel=1e-7, abs=1e-9), key
        else:
            assert row[0] == pytest.approx(float(start[key[1]].square().sum()), rel=1e-7)


def test_without_a_copy_of_the_first_parameters(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db", initial=False)
    train(model, optimizer, 2)
    monitor.close()
    found = columns(tmp_path / "run.db")
    assert all(init is None and largest is not None for init, largest in found.values())


def test_a_resumed_training_does_not_know_the_first_parameters(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)) as monitor:
        train(model, optimizer, 2)
        state = monitor.state_dict()
    with Monitor(model, optimizer, tmp_path / "run.db", every(1), step=state["step"]):
        train(model, optimizer, 4, first=2)
    found = columns(tmp_path / "run.db")
    assert all((init is None) == (step > 2) for (step, _), (init, _) in found.items())
