"""The monitor against an independent slow version: copies, float64, no kernel."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope.errors import UsageError
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.live.recording import previous_values
from normscope.run import NO_PREVIOUS, Run
from normscope.schedule import at_steps, every
from normscope.weights.sums import live_sums
from tests.live.small_training import batches, blocks, rows, sgd, tiny, train_blocks


def slow(
    model: nn.Module, before: nn.Module, gradients: dict[str, Tensor]
) -> dict[str, dict[str, float | None]]:
    """Every column again, with copies and plain float64."""
    found = {}
    previous = dict(before.named_parameters())
    for name, parameter in model.named_parameters():
        theta, old = parameter.detach().double(), previous[name].detach().double()
        delta, gradient = theta - old, gradients.get(name)
        found[name] = {
            "sumsq": float((theta * theta).sum()),
            "dot": float((old * delta).sum()),
            "sumsq_delta": float((delta * delta).sum()),
            "grad_sumsq": None if gradient is None else float(gradient.double().pow(2).sum()),
            "grad_dot": None if gradient is None else float((gradient.double() * old).sum()),
        }
    return found


def check(found: dict[str, float], expected: dict[str, float | None]) -> None:
    scale = {"dot": (expected["sumsq"] * expected["sumsq_delta"]) ** 0.5, "grad_dot": 1.0}
    if expected["grad_sumsq"] is not None:
        scale["grad_dot"] = (expected["sumsq"] * expected["grad_sumsq"]) ** 0.5
    for column, value in expected.items():
        if value is None:
            assert found[column] is None, column
        else:
            assert found[column] == pytest.approx(value, rel=1e-7, abs=1e-7 * scale.get(column, 0.0)), column


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw, tensor by tensor": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "adamw, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_column_against_copies(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    model = tiny(dtype)
    optimizer = OPTIMIZERS[kind](p for p in model.parameters() if p.requires_grad)
    expected = {}
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=at_steps([0, 2, 3])) as monitor:
        for step, tokens in enumerate(batches(4), start=1):
            optimizer.zero_grad()
            model(tokens).backward()
            gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            before = copy.deepcopy(model)
            optimizer.step()
            expected[step] = slow(model, before, gradients)
        assert monitor.step == 4
    found = rows(tmp_path / "run.db")
    assert {step for step, _ in found} == {0, 2, 3}
    assert {row["prev_step"] for (step, _), row in found.items() if step == 0} == {NO_PREVIOUS}
    for (step, name), row in found.items():
        if step:
            assert row["prev_step"] == step - 1
            check(row, expected[step][name])


def test_what_is_listed_tied_frozen_and_skipped(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        model(batches(1)[0]).backward()
        optimizer.step()
    with Run(tmp_path / "run.db") as run:
        tensors = {tensor.name: tensor for tensor in run.tensors()}
        assert tensors["head.weight"].tied_to == tensors["embedding.weight"].id
        assert run.skipped() == {"table": "buffer"}
        assert run.meta["monitor"]["schedule"] == "every:1"
    found = rows(tmp_path / "run.db")
    assert (1, "head.weight") not in found
    frozen = found[1, "frozen.weight"]
    assert (frozen["dot"], frozen["sumsq_delta"], frozen["lr"], frozen["grad_sumsq"]) == (0, 0, None, None)
    assert found[1, "never"]["grad_sumsq"] is None


def test_each_parameter_has_its_own_groups_rates(tmp_path: Path) -> None:
    model = tiny()
    groups = [
        {"params": [model.embedding.weight], "lr": 0.5},
        {"params": [model.inner.weight, model.inner.bias], "weight_decay": 0.3},
    ]
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(0.125), weight_decay=0.0, foreach=False)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        model(batches(1)[0]).backward()
        optimizer.step()
    found = rows(tmp_path / "run.db")
    assert (found[1, "embedding.weight"]["lr"], found[1, "embedding.weight"]["weight_decay"]) == (0.5, 0.0)
    assert (found[1, "inner.bias"]["lr"], found[1, "inner.bias"]["weight_decay"]) == (0.125, 0.3)
    assert found[1, "frozen.bias"]["lr"] is None


@pytest.mark.parametrize("setting", ["lr", "weight_decay"])
def test_a_rate_that_changes_between_records_is_noted(tmp_path: Path, setting: str) -> None:
    model = tiny()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.25, weight_decay=0.5)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(4)):
        for step, tokens in enumerate(batches(8), start=1):
            optimizer.param_groups[0][setting] = 0.125 if step > 5 else optimizer.defaults[setting]
            model(tokens).backward()
            optimizer.step()
    with Run(tmp_path / "run.db") as run:
        noted = run.query(f"SELECT step, {setting} FROM rate ORDER BY step")
    assert noted == [(1, optimizer.defaults[setting]), (6, 0.125)]


def test_accumulated_micro_batches_are_one_step(tmp_path: Path) -> None:
    model = tiny()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    expected = {}
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        for step in (1, 2):
            optimizer.zero_grad()
            for tokens in batches(3):
                (model(tokens) / 3).backward()
            gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            before = copy.deepcopy(model)
            optimizer.step()
            expected[step] = slow(model, before, gradients)
    found = rows(tmp_path / "run.db")
    assert {step for step, _ in found} == {0, 1, 2}
    for (step, name), row in found.items():
        if step:
            check(row, expected[step][name])


@pytest.mark.parametrize("first_scale", [1024.0, 4.0, 1.0])  # the step that is skipped halves it
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_grad_scaler_scales_nothing_and_skipped_steps_are_not_counted(
    tmp_path: Path, fused: bool, unscale: bool, first_scale: float
) -> None:
    model = tiny()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=first_scale)
    expected: list[dict[str, dict[str, float | None]]] = []
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)) as monitor:
        for turn, tokens in enumerate(batches(4)):
            optimizer.zero_grad()
            scale = scaler.get_scale()
            loss = model(tokens)
            scaler.scale(loss * float("inf") if turn == 1 else loss).backward()
            gradients = {n: p.grad / scale for n, p in model.named_parameters() if p.grad is not None}
            if unscale:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            before = copy.deepcopy(model)
            scaler.step(optimizer)
            scaler.update()
            if turn != 1:
                expected.append(slow(model, before, gradients))
        assert monitor.step == 3
    found = rows(tmp_path / "run.db")
    assert {step for step, _ in found} == {0, 1, 2, 3}
    for (step, name), row in found.items():
        if step:
            check(row, expected[step - 1][name])


def test_a_closure_that_runs_backward_inside_the_step(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    tokens, gradients = batches(1)[0], {}

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        gradients.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        return loss

    before = copy.deepcopy(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        optimizer.step(closure)
    found, expected = rows(tmp_path / "run.db"), slow(model, before, gradients)
    for name in expected:
        check(found[1, name], expected[name])


def test_several_optimizers_make_one_step(tmp_path: Path) -> None:
    model = tiny()
    optimizers = [
        torch.optim.SGD([model.embedding.weight], lr=0.1, momentum=0.9),
        torch.optim.AdamW(model.inner.parameters(), lr=0.01),
    ]
    before = copy.deepcopy(model)
    with Monitor(model, optimizers, tmp_path / "run.db", schedule=every(1)) as monitor:
        model(batches(1)[0]).backward()
        gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        for optimizer in optimizers:
            optimizer.step()
        assert monitor.step == 1
    found, expected = rows(tmp_path / "run.db"), slow(model, before, gradients)
    for name in expected:
        check(found[1, name], expected[name])


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Tensor]]:
    """References to the tensors that the monitor has copied parameters into."""
    found: list[weakref.ref[Tensor]] = []

    def copy_into(targets: live_sums.KeptTensors, *rest: Any) -> bool:
        found.extend(map(weakref.ref, targets.tensors))
        return live_sums.copy_into(targets, *rest)

    monkeypatch.setattr(previous_values, "copy_into", copy_into)
    return found


def alive(references: Sequence[weakref.ref[Tensor]]) -> int:
    return sum(reference() is not None for reference in references)


def test_optimizers_that_step_inside_backward_hold_one_tensor_at_a_time(
    tmp_path: Path, copied: list[weakref.ref[Tensor]]
) -> None:
    model = tiny()
    model.never.requires_grad_(False)
    before, gradients, optimizers = copy.deepcopy(model), {}, {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            optimizers[parameter] = (name, torch.optim.AdamW([parameter], lr=0.01))

    def step(parameter: Tensor) -> None:
        name, optimizer = optimizers[parameter]
        gradients[name] = parameter.grad.clone()
        optimizer.step()
        assert copied and not alive(copied)
        optimizer.zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(step)
    everyone = [optimizer for _, optimizer in optimizers.values()]
    with Monitor(model, everyone, tmp_path / "run.db", schedule=at_steps([1])):
        model(batches(1)[0]).backward()
    found, expected = rows(tmp_path / "run.db"), slow(model, before, gradients)
    for name in expected:
        check(found[1, name], expected[name])


def test_sparse_gradients_and_odd_strides(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 4, sparse=True)
            self.turned = nn.Parameter(torch.randn(5, 4).t())

        def forward(self, tokens: Tensor) -> Tensor:
            return (self.embedding(tokens) @ self.turned).pow(2).mean()

    torch.manual_seed(0)
    model = Odd()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        model(torch.tensor([1, 3, 3])).backward()
        gradients = {n: p.grad.to_dense().clone() for n, p in model.named_parameters()}
        optimizer.step()
    found, expected = rows(tmp_path / "run.db"), slow(model, before, gradients)
    for name in expected:
        check(found[1, name], expected[name])


def test_gradients_without_a_backward_pass_are_measured_at_the_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny()
    optimizer = sgd(model)
    model.inner.weight.grad = torch.full((6, 6), 2.0)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)):
        optimizer.step()
    assert rows(tmp_path / "run.db")[1, "inner.weight"]["grad_sumsq"] == 144.0
    assert "measured when optimizer.step begins" in caplog.text
    with Run(tmp_path / "run.db") as run:
        assert "after any clipping" in run.meta["monitor.gradients"]


@pytest.mark.parametrize("little", [0, previous_values.LITTLE])
def test_memory_for_the_update_only_on_scheduled_steps(
    tmp_path: Path, copied: list[weakref.ref[Tensor]], little: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few megabytes are kept: to make small tensors anew takes longer than the record."""
    monkeypatch.setattr(previous_values, "LITTLE", little)
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(2)):
        for tokens in batches(4):
            model(tokens).backward()
            optimizer.step()
            assert little or not alive(copied)
    number = len(optimizer.param_groups[0]["params"])
    assert len(copied) == 2 * number and len({id(each()) for each in copied}) == (number if little else 1)


def test_without_updates_and_gradients_only_norms(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    options = MonitorOptions(updates=False, gradients=False)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1), options):
        model(batches(1)[0]).backward()
        optimizer.step()
    row = rows(tmp_path / "run.db")[1, "inner.weight"]
    assert row["sumsq"] == pytest.approx(float(model.inner.weight.detach().double().pow(2).sum()), rel=1e-7)
    assert (row["dot"], row["sumsq_delta"], row["grad_sumsq"]) == (None, None, None)


def test_scalars_of_recorded_steps(tmp_path: Path) -> None:
    model = tiny()
    optimizer = sgd(model)
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(2)) as monitor:
        for step, tokens in enumerate(batches(4), start=1):
            loss = model(tokens)
            loss.backward()
            optimizer.step()
            monitor.log(loss=loss, tokens=20 * step)
    with Run(tmp_path / "run.db") as run:
        found = run.query("SELECT step, name, value FROM scalar ORDER BY step, name")
    assert [(step, name) for step, name, _ in found] == [
        (2, "loss"),
        (2, "tokens"),
        (4, "loss"),
        (4, "tokens"),
    ]
    assert found[1][2] == 40 and found[3][2] == 80


def test_the_wrong_optimizer_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of the model's parameters"):
        Monitor(tiny(), torch.optim.SGD(tiny().parameters(), lr=0.1), tmp_path / "run.db")


def test_a_file_that_is_not_a_run_file_is_an_error_before_training(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a run file, and never will be one")
    model = tiny()
    with pytest.raises(UsageError, match="not a run file"):
        Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"measures": ("colour",)}, "measures must be .* norm, update, alignment, gradient; got .*colour"),
        ({"groups": ("colour",)}, "groups must be .* total, layer, role, component, tensor; got .*colour"),
        ({"groups": "layer"}, "groups must be a tuple"),
        ({"groups": ()}, "groups must be a tuple of one or more"),
        ({"scope": "colour"}, "scope must be body or all; got 'colour'"),
        ({"step": -1}, "step must be an integer of at least 0; got -1"),
        ({"step": 0.5}, "step must be an integer of at least 0; got 0.5"),
        ({"measures": ("norm", "alignment"), "updates": False}, "'alignment' needs updates=True"),
        ({"measures": ("gradient",), "gradients": False}, "'gradient' needs gradients=True"),
        ({"loggers": ["wandb"]}, "a logger must be a function .* got 'wandb'"),
    ],
    ids=str,
)
def test_options_that_cannot_be_used_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MonitorOptions(**wrong)


def test_a_schedule_in_words_is_refused(tmp_path: Path) -> None:
    model = tiny()
    with pytest.raises(UsageError, match="must come from every, .* got 'log:10'"):
        Monitor(model, sgd(model), tmp_path / "run.db", "log:10")  # type: ignore[arg-type]


def test_the_keys_that_loggers_see(tmp_path: Path) -> None:
    net = blocks()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    options = MonitorOptions(groups=("total", "layer", "role", "component", "tensor"), updates=False)
    with Monitor(net, optimizer, tmp_path / "run.db", every(1), options) as monitor:
        train_blocks(net, optimizer, 1)
    measures = {"norm", "gradient"}
    roles = {"attention-output", "bias", "mlp-in", "mlp-out", "norm", "qkv"}
    keys = {"total", "component/model", *(f"layer/{i:02d}" for i in range(4)), *(f"role/{r}" for r in roles)}
    keys |= {f"tensor/{n}" for n, _ in net.named_parameters() if n.startswith("layers")}
    scopes = {"normscope/norm/scope/body", "normscope/norm/scope/all", "normscope/gradient/scope/body"}
    values = {f"normscope/{measure}/{key}" for measure in measures for key in keys}
    assert set(monitor.latest) == values | scopes
    assert monitor.latest["normscope/norm/scope/body"] == monitor.latest["normscope/norm/total"]
    everything = sum(float(p.detach().double().square().sum()) for p in net.parameters()) ** 0.5
    assert monitor.latest["normscope/norm/scope/all"] == pytest.approx(everything, rel=1e-6)
    for measure in measures:
        total = monitor.latest[f"normscope/{measure}/total"]
        parts = [monitor.latest[f"normscope/{measure}/role/{role}"] for role in roles]
        assert total**2 == pytest.approx(sum(part**2 for part in parts))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_changes_nothing(tmp_path: Path) -> None:
    for name, wrap in (("plain", lambda m: m), ("compiled", torch.compile)):
        model = wrap(tiny(torch.float64))
        optimizer = sgd(model)
        with Monitor(model, optimizer, tmp_path / f"{name}.db", schedule=every(1)):
            for tokens in batches(3):
                optimizer.zero_grad()
                model(tokens).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
                optimizer.step()
    plain, compiled = rows(tmp_path / "plain.db"), rows(tmp_path / "compiled.db")
    assert plain.keys() == compiled.keys()
    for key, row in plain.items():
        for column, value in row.items():
            same = value if value is None else pytest.approx(value, rel=1e-5, abs=1e-7)  # the loss is float32
            assert compiled[key][column] == same, (key, column)
