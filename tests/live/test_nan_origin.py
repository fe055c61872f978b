"""The alarm about NaN says where it began: forward, loss, backward or update; and what hooks leave behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from normscope.live.alarms.alarms import Alarm
from normscope.live.hooks.forward_watch import ForwardWatch
from normscope.live.monitor import Monitor
from normscope.schedule import Schedule, every


class _NanInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * float("nan")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)
        self.fault = ""

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.up(x))
        if self.fault == "forward":
            hidden = hidden / 0.0
        if self.fault == "backward":
            hidden = _NanInBackward.apply(hidden)
        return x + self.down(hidden)


class Net(nn.Module):
    """Names whose alphabetical order is not that of the pass: zero, one, two."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.zero, self.one, self.two = nn.Linear(4, 6), Block(), Block()
        self.alpha = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha(self.two(self.one(self.zero(x))))


def message(path: Path, fault: str, schedule: Schedule = every(1), begins: int = 4) -> str:
    """The alarm about a fault that begins at a step."""
    net, raised = Net(), list[Alarm]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with Monitor(net, optimizer, path, schedule, on_alarm=raised.append) as monitor:
        for step in range(1, begins + 12):
            if step == begins and fault in ("forward", "backward"):
                net.one.fault = fault
            if step == begins and fault == "parameter":
                net.two.up.weight.data[0, 0] = float("nan")
            if step == begins and fault == "update":
                optimizer.param_groups[0]["lr"] = float("inf")
            optimizer.zero_grad()
            loss = net(torch.randn(5, 4)).square().mean()
            if step == begins and fault == "loss":
                loss = loss * float("nan")
            loss.backward()
            optimizer.step()
            monitor.log(loss=loss)
    found = [alarm for alarm in raised if alarm.kind == "nonfinite"]
    assert len(found) == 1 and found[0].severity == "critical"
    assert found[0].step == next(s for s in schedule.steps(begins + 12) if s >= begins)
    return found[0].message


def test_in_the_forward_pass(tmp_path: Path) -> None:
    """The division comes before `one.down`, whose input it is."""
    said = message(tmp_path / "run.db", "forward")
    assert "they began in the forward pass: one.down is the first module whose output has them" in said
    assert said.endswith(
        "its input has them already, so they began before it and after one.up, whose output is finite"
    )


def test_to_look_once_more_changes_nothing() -> None:
    """Random numbers, statistics of batches and the mode are those of a training that nobody looks at."""

    def trained(watched: bool) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        watch = ForwardWatch(net)
        if watched:
            watch.arm()
        net(torch.tensor([[1.0, 2, 3, 4], [torch.inf, 1, 1, 1]]))
        look = watch.take()
        assert not watched or (look is not None and (look.module, look.input_finite) == ("0", False))
        return torch.rand(3), net[0].running_var  # type: ignore[return-value]

    for mine, theirs in zip(trained(True), trained(False), strict=True):
        assert torch.equal(mine.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_in_a_parameter_that_had_it_before(tmp_path: Path) -> None:
    said = message(tmp_path / "run.db", "parameter")
    assert "two.up is the first module in the forward pass whose output has them" in said
    assert "its parameters two.up.weight had them before this step" in said


def test_in_the_loss(tmp_path: Path) -> None:
    assert "they began after the model's output, which has no NaN" in message(tmp_path / "run.db", "loss")


def test_in_the_backward_pass(tmp_path: Path) -> None:
    said = message(tmp_path / "run.db", "backward")
    assert "they began in the backward pass: one.up." in said and "that are finite" in said


def test_in_the_update(tmp_path: Path) -> None:
    said = message(tmp_path / "run.db", "update")
    assert "all gradients were finite, so they began in the update of zero.weight" in said


def test_between_two_records(tmp_path: Path) -> None:
    said = message(tmp_path / "run.db", "forward", every(5), begins=7)
    assert ", since a step after 5 and at the latest step 10;" in said


def test_hooks_are_there_only_at_record_steps_and_keep_nothing_alive(tmp_path: Path) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    hooked = []
    with Monitor(net, optimizer, tmp_path / "run.db", every(3)):
        for _ in range(6):
            hooked.append(len(net._forward_hooks) == 1)
            net(torch.randn(5, 4)).mean().backward()
            optimizer.step()
    assert hooked == [False, False, True, False, False, True]
    assert not any(module._forward_hooks for module in net.modules())


def watched_steps(
    path: Path, net: nn.Module, model: nn.Module, call: Callable[[Tensor], Tensor], fault: nn.Module
) -> str:
    """Train by calling `call`; at step 5 a block begins to divide by zero. What the alarm says."""
    raised: list[Alarm] = []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with Monitor(model, optimizer, path, every(1), on_alarm=raised.append):
        for step in range(1, 8):
            if step == 5:
                fault.fault = "forward"  # type: ignore[assignment]
            optimizer.zero_grad()
            call(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
    (found,) = [alarm.message for alarm in raised if alarm.kind == "nonfinite"]
    return found


BEFORE_DOWN = "one.down is the first module whose output has them; its input has them already"


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of Dynamo, about inputs of a block
@pytest.mark.parametrize("how", ["torch.compile", "module.compile", "blocks", "inside a wrapper"])
def test_in_a_compiled_model(tmp_path: Path, how: str) -> None:
    """The pass is made once more without compilation; nothing is compiled again for the monitor."""
    net = Net()
    model: nn.Module = net
    if how == "torch.compile":
        model = torch.compile(net, backend="eager")  # type: ignore[assignment]
    elif how == "module.compile":
        net.compile(backend="eager")
    elif how == "blocks":
        net.one.compile(backend="eager")
        net.two = torch.compile(net.two, backend="eager")  # type: ignore[assignment]
    else:
        model = nn.Sequential(torch.compile(net, backend="eager"))  # type: ignore[arg-type]
    said = watched_steps(tmp_path / "run.db", net, model, model, net.one)
    assert BEFORE_DOWN in said


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of Dynamo, about inputs of a block
@pytest.mark.parametrize("compiled", [False, True])
def test_where_the_models_own_forward_is_never_called(tmp_path: Path, compiled: bool) -> None:
    class Holder(nn.Module):
        """Its parts are called by the loop, some of them inside a part that is not called either."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.ModuleDict({"net": Net()})
            self.end = nn.ModuleList([nn.Linear(3, 2)])

    holder = Holder()
    net = holder.body["net"]
    assert isinstance(net, Net)
    if compiled:
        net.one.compile(backend="eager")
    call = lambda x: holder.end[0](net.alpha(net.two(net.one(net.zero(x)))))  # noqa: E731
    said = watched_steps(tmp_path / "run.db", holder, holder, call, net.one)
    assert "body.net.one.down is the first module whose output has them" in said
    assert said.endswith("and after body.net.one.up, whose output is finite")


def test_nothing_is_compiled_again_and_a_finite_compiled_model_is_looked_at() -> None:
    def compiled_graphs(armed: bool) -> tuple[int, bool]:
        torch._dynamo.reset()
        counters.clear()
        net = Net()
        model = torch.compile(net, backend="eager")
        watch = ForwardWatch(model)  # type: ignore[arg-type]
        finite = False
        for step in range(6):
            if armed and step % 2:
                watch.arm()
            model(torch.ones(5, 4)).sum().backward()
            look = watch.take()
            finite = finite or (look is not None and look.finite is True)
            watch.disarm()
        return counters["stats"]["unique_graphs"], finite

    (alone, _), (watched, finite) = compiled_graphs(False), compiled_graphs(True)
    assert alone == watched and finite


def test_a_loss_of_parts_says_which_outputs_were_seen(tmp_path: Path) -> None:
    net, raised = Net(), list[Alarm]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with Monitor(net, optimizer, tmp_path / "run.db", every(1), on_alarm=raised.append):
        for step in range(1, 8):
            optimizer.zero_grad()
            loss = net.two(net.one(net.zero(torch.randn(5, 4)))).square().mean()
            (loss * float("nan") if step == 6 else loss).backward()
            optimizer.step()
    assert "after the outputs of zero, one, two, which have no NaN: in the loss" in raised[0].message


def test_in_a_module_without_parameters() -> None:
    class Scale(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x) / (x - x)

    net = nn.Sequential(nn.ReLU(), Scale())
    watch = ForwardWatch(net)
    watch.arm()
    net(torch.ones(2, 3))
    look = watch.take()
    assert look is not None and (look.module, look.input_finite) == ("1", True)


def test_a_model_that_is_not_called_says_so(tmp_path: Path) -> None:
    net, raised = nn.Linear(3, 2), list[Alarm]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with Monitor(net, optimizer, tmp_path / "run.db", every(1), on_alarm=raised.append):
        for step in range(1, 4):
            optimizer.zero_grad()
            out = torch.ones(2, 3) @ net.weight.T + net.bias
            (out.sum() * (float("nan") if step == 3 else 1.0)).backward()
            optimizer.step()
    assert raised[0].message.endswith("in which module is not known: no call of the model was seen")


@pytest.mark.parametrize("masked", [True, False], ids=["masked logits", "evaluation"])
def test_infinite_masks_and_evaluation_are_no_trouble(masked: bool) -> None:
    class Masked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).masked_fill(torch.eye(3, dtype=torch.bool), -torch.inf)

    net = Masked(3, 3)
    watch = ForwardWatch(net)
    watch.arm()
    if masked:
        net(torch.ones(3, 3))
        look = watch.take()
        assert look is not None and look.finite
    else:
        with torch.no_grad():
            net(torch.full((3, 3), torch.nan))
        look = watch.take()
        assert look is not None and look.finite is None
