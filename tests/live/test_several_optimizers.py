"""Several optimizers: each one's gradients are those that its step used, and its updates add up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normscope.live.hooks.step_cycle import StepCycle
from normscope.live.monitor import Monitor
from normscope.schedule import every
from tests.live.small_training import rows

Copies = dict[str, Tensor]


class Pair(nn.Module):
    """A generator and a critic."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.maker = nn.Linear(4, 6)
        self.critic = nn.Linear(6, 3)


def copies(module: nn.Module, prefix: str) -> Copies:
    return {f"{prefix}.{n}": p.detach().double().clone() for n, p in module.named_parameters()}


def gradients(module: nn.Module, prefix: str) -> Copies:
    return {f"{prefix}.{n}": p.grad.double().clone() for n, p in module.named_parameters()}


def square(x: Tensor) -> float:
    return float((x.double() ** 2).sum())


def critic_loss(pair: Pair) -> Tensor:
    made = pair.maker(torch.randn(5, 4)).detach()
    return pair.critic(made).square().mean() - pair.critic(torch.randn(5, 6)).mean()


def maker_loss(pair: Pair) -> Tensor:
    return -pair.critic(pair.maker(torch.randn(5, 4))).mean()


@pytest.mark.parametrize("turns", [1, 3])
def test_the_other_loss_runs_through_the_same_parameters(tmp_path: Path, turns: int) -> None:
    pair = Pair()
    critic = torch.optim.AdamW(pair.critic.parameters(), lr=0.01)
    maker = torch.optim.SGD(pair.maker.parameters(), lr=0.1)
    expected = {}
    with Monitor(pair, [critic, maker], tmp_path / "run.db", every(1)) as monitor:
        for step in range(1, 4):
            before = {**copies(pair.critic, "critic"), **copies(pair.maker, "maker")}
            for _ in range(turns):
                critic.zero_grad()
                critic_loss(pair).backward()
                used = gradients(pair.critic, "critic")
                nn.utils.clip_grad_norm_(pair.critic.parameters(), 1e-3)
                critic.step()
            maker.zero_grad()
            maker_loss(pair).backward()  # also changes the gradients of the critic
            used |= gradients(pair.maker, "maker")
            maker.step()
            after = {**copies(pair.critic, "critic"), **copies(pair.maker, "maker")}
            for name in before:
                expected[step, name] = square(used[name]), square(after[name] - before[name])
        assert monitor.step == 3
    found = rows(tmp_path / "run.db")
    for key, (gradient, update) in expected.items():
        assert found[key]["grad_sumsq"] == pytest.approx(gradient, rel=1e-6), key
        assert found[key]["sumsq_delta"] == pytest.approx(update, rel=1e-5), key


def test_clipped_between_two_backward_passes(tmp_path: Path) -> None:
    """Both losses first, then both steps: clipping the first's gradients must not be taken for them."""
    pair = Pair()
    critic, maker = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (pair.critic, pair.maker))
    with Monitor(pair, [critic, maker], tmp_path / "run.db", every(1)):
        critic_loss(pair).backward()
        used = gradients(pair.critic, "critic")
        nn.utils.clip_grad_norm_(pair.critic.parameters(), 1e-3)
        pair.maker(torch.randn(5, 4)).square().mean().backward()
        used |= gradients(pair.maker, "maker")
        critic.step()
        maker.step()
    found = rows(tmp_path / "run.db")
    for name, gradient in used.items():
        assert found[1, name]["grad_sumsq"] == pytest.approx(square(gradient), rel=1e-6), name


def test_two_optimizers_of_one_parameter(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    both = [torch.optim.SGD(layer.parameters(), lr=lr) for lr in (0.1, 0.01)]
    before = layer.weight.detach().double().clone()
    with Monitor(layer, both, tmp_path / "run.db", every(1)):
        for optimizer in both:
            optimizer.zero_grad()
            layer(torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
    update = layer.weight.detach().double() - before
    found = rows(tmp_path / "run.db")[1, "weight"]
    assert found["sumsq_delta"] == pytest.approx(square(update), rel=1e-5)
    assert found["dot"] == pytest.approx(float((before * update).sum()), rel=1e-5)


def test_an_optimizer_that_rests_does_not_stop_the_counting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepCycle, "PATIENCE", 5)
    pair = Pair()
    critic, maker = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (pair.critic, pair.maker))
    with Monitor(pair, [critic, maker], tmp_path / "run.db", every(1)) as monitor:
        for _ in range(8):
            critic_loss(pair).backward()
            critic.step()
        assert monitor.step == 4  # five steps as one, then each by itself
        for _ in range(2):
            maker_loss(pair).backward()
            maker.step()
            critic_loss(pair).backward()
            critic.step()
        assert monitor.step == 6
    assert caplog.text.count("has not stepped for 5 steps of another") == 1
    assert {step for step, _ in rows(tmp_path / "run.db")} == set(range(7))


def test_the_gradients_of_lbfgs_are_those_of_its_first_closure(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    x, y = torch.randn(8, 3), torch.randn(8, 2)
    optimizer = torch.optim.LBFGS(layer.parameters(), lr=0.5, max_iter=6)
    seen: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (layer(x) - y).square().mean()
        for half in (loss / 2, (layer(x) - y).square().mean() / 2):  # two backward passes in one closure
            half.backward()
        seen.append(square(layer.weight.grad))
        return loss

    starts = []
    with Monitor(layer, optimizer, tmp_path / "run.db", every(1)):
        for _ in range(3):
            starts.append(len(seen))
            optimizer.step(closure)
    assert len(seen) > 6  # several calls in a step
    found = rows(tmp_path / "run.db")
    for step, start in enumerate(starts, start=1):
        assert found[step, "weight"]["grad_sumsq"] == pytest.approx(seen[start], rel=1e-6)


def test_parameters_of_a_group_beyond_the_first_eight_are_seen(tmp_path: Path) -> None:
    """Every backward is caught, also one that reaches only a few of many parameters."""
    layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(40))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    with Monitor(layers, optimizer, tmp_path / "run.db", every(1)) as monitor:
        for number in (3, 17, 38):
            optimizer.zero_grad()
            layers[number](torch.ones(1, 2)).sum().backward()
            gradient = square(layers[number].weight.grad)
            nn.utils.clip_grad_norm_(layers.parameters(), 1e-4)
            optimizer.step()
            found = monitor.flush() and rows(tmp_path / "run.db")
            assert found[monitor.step, f"{number}.weight"]["grad_sumsq"] == pytest.approx(gradient)
            others = [i for i in range(40) if i != number]
            assert all(found[monitor.step, f"{i}.weight"]["grad_sumsq"] is None for i in others)


def test_two_backward_passes_through_different_parameters(tmp_path: Path) -> None:
    layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(40))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    with Monitor(layers, optimizer, tmp_path / "run.db", every(1)):
        layers[0](torch.ones(1, 2)).sum().backward()
        layers[17](torch.ones(1, 2)).sum().backward()
        used = {i: square(layers[i].weight.grad) for i in (0, 17)}
        nn.utils.clip_grad_norm_(layers.parameters(), 1e-4)
        optimizer.step()
    found = rows(tmp_path / "run.db")
    for i, gradient in used.items():
        assert found[1, f"{i}.weight"]["grad_sumsq"] == pytest.approx(gradient)
