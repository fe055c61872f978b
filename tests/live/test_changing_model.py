"""A model or an optimizer that changes while it trains: noticed at the next record, followed, and said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from normscope.live.model.model_watch import ModelWatch
from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.schedule import every
from tests.live.small_training import rows


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()


def square(parameter: torch.Tensor) -> float:
    return float(parameter.detach().double().square().sum())


def test_a_layer_is_added(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)):
        step(model, optimizer)
        model.append(nn.Linear(2, 3))
        optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.1})
        for _ in range(2):
            step(model, optimizer)
    found = rows(tmp_path / "run.db")
    assert found[3, "3.weight"]["sumsq"] == pytest.approx(square(model[3].weight))
    assert found[3, "3.weight"]["lr"] == 0.1
    assert found[2, "3.weight"]["grad_sumsq"] is None  # made before the layer was known
    assert found[2, "0.weight"]["grad_sumsq"] is not None
    assert found[3, "3.weight"]["grad_sumsq"] is not None
    assert found[2, "3.weight"]["sumsq_delta"] is not None
    assert "the model has changed before step 2: 3.weight, 3.bias added" in caplog.text
    with Run(tmp_path / "run.db") as run:
        assert {tensor.name for tensor in run.tensors()} >= {"0.weight", "3.weight"}


def test_a_parameter_is_replaced_and_the_optimizer_keeps_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)):
        step(model, optimizer)
        model[2] = nn.Linear(4, 2)
        step(model, optimizer)
    found = rows(tmp_path / "run.db")
    assert found[2, "2.weight"]["sumsq"] == pytest.approx(square(model[2].weight))
    assert found[2, "2.weight"]["lr"] is None
    assert "2.weight, 2.bias replaced (no optimizer updates 2.weight, 2.bias)" in caplog.text


def test_parameters_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)):
        step(model, optimizer)
        model[1] = nn.Identity()
        step(model, optimizer)
    found = rows(tmp_path / "run.db")
    assert (1, "1.weight") in found and (2, "1.weight") not in found
    assert (2, "0.weight") in found
    assert "1.weight, 1.bias removed" in caplog.text


def test_unfrozen(tmp_path: Path) -> None:
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)):
        step(model, optimizer)
        model[0].requires_grad_(True)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            gradient = square(model[0].weight.grad)
            nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
            optimizer.step()
    found = rows(tmp_path / "run.db")
    assert found[1, "0.weight"]["grad_sumsq"] is None
    assert found[3, "0.weight"]["grad_sumsq"] == pytest.approx(gradient)


def test_another_optimizer_takes_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, first, tmp_path / "run.db", every(1)) as monitor:
        step(model, first)
        second = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            before = model[0].weight.detach().double().clone()
            step(model, second)
        assert monitor.step == 4
    found = rows(tmp_path / "run.db")
    assert "since step 2, AdamW updates the model instead of the one before" in caplog.text
    assert {s for s, _ in found} == {0, 1, 3, 4}  # the first step of the new one began before it was known
    assert found[4, "0.weight"]["lr"] == 0.01
    update = model[0].weight.detach().double() - before
    assert found[4, "0.weight"]["sumsq_delta"] == pytest.approx(float(update.square().sum()), rel=1e-5)
    with Run(tmp_path / "run.db") as run:
        kinds = dict(run.query("SELECT step, kind FROM optimizer ORDER BY step"))
    assert kinds == {1: "SGD", 3: "AdamW"}


def test_an_optimizer_of_another_model_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, other = network(), network()
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    with Monitor(model, mine, tmp_path / "run.db", every(1)) as monitor:
        for _ in range(3):
            step(other, theirs)
            step(model, mine)
        assert monitor.step == 3
    assert "normscope" not in caplog.text


def test_a_monitor_that_no_longer_gets_steps_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(model, optimizer, tmp_path / "run.db", every(1))
    step(model, optimizer)
    for _ in range(40):  # an update that no optimizer makes
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01)
        monitor.log(loss=1.0)
    assert "have changed since step 1, but no optimizer was seen to step" in caplog.text
    monitor.close()


def test_loading_the_best_weights_at_the_end_is_no_such_case(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)):
        step(model, optimizer)
        model.load_state_dict(network().state_dict())
    assert "no optimizer was seen" not in caplog.text


def test_a_closed_monitor_leaves_no_hooks(tmp_path: Path) -> None:
    from torch.optim.optimizer import _global_optimizer_post_hooks

    before = len(_global_optimizer_post_hooks)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(model, optimizer, tmp_path / "run.db", every(1))
    step(model, optimizer)
    monitor.close()
    assert len(_global_optimizer_post_hooks) == before
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.append(nn.Linear(2, 2)),
        lambda m: m.__setitem__(0, nn.Linear(4, 4)),
        lambda m: m.__delitem__(2),
        lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(4, 4))),
        lambda m: setattr(m[1], "scale", nn.Parameter(torch.ones(1))),
        lambda m: setattr(m[1], "inner", nn.Linear(1, 1)),
        lambda m: setattr(m[0], "bias", None),
    ],
)
def test_what_is_a_change(change: object) -> None:
    model = network()
    watch = ModelWatch(model)
    assert not watch.changed()
    model.load_state_dict(network().state_dict())
    model.train().requires_grad_(False)
    assert not watch.changed()
    change(model)  # type: ignore[operator]
    assert watch.changed()
