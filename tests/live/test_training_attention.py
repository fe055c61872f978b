"""attention="observe": the training forward, seen without changing it, whatever else happens around it."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import normscope as ns
from tests.live import attention_references as references
from tests.network.models import HandWritten


class Sdpa(nn.Module):
    """Two blocks with fused attention, dropout and a head; each block may be checkpointed."""

    def __init__(self, dropout: float = 0.0, run: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(16, 50)
        self.run = run or (lambda block, x: block(x))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.layers:
            x = self.run(block, x)
        return self.head(x)


def batches(number: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 50, (3, 9), generator=generator) for _ in range(number)]


def made(build: Callable[[], nn.Module]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = build()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    return model(tokens).square().mean()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, tokens)
    loss.backward()
    optimizer.step()
    return loss.detach()


def observed(path: Path) -> dict[int, references.Numbers]:
    found: dict[int, references.Numbers] = {}
    with ns.Run(path) as run:
        for row in (ns.AttentionRow(**values) for values in run.table(ns.AttentionRow)):
            numbers = (row.logit, row.entropy, row.relative_entropy)
            found.setdefault(row.step, {})[row.module, row.head] = numbers
    return found


def trained(build: Callable[[], nn.Module], path: Path | None, **options: Any) -> list[Any]:
    """Losses, gradients of the last step, parameters and the random state after four steps."""
    model, optimizer = made(build)
    monitor = (
        ns.Monitor(model, optimizer, path, ns.every(1), attention="observe", **options) if path else None
    )
    losses = [step(model, optimizer, tokens) for tokens in batches(4)]
    if monitor is not None:
        assert monitor.close()
    tensors = [*losses, *(p.grad for p in model.parameters()), *model.parameters(), torch.get_rng_state()]
    return [tensor.detach().clone() for tensor in tensors if tensor is not None]


def saving(policy: CheckpointPolicy, matmul: Any) -> Callable[..., Any]:
    def decide(_: Any, op: Any, *__: Any, **___: Any) -> CheckpointPolicy:
        return policy if op in matmul else CheckpointPolicy.PREFER_RECOMPUTE

    return lambda: create_selective_checkpoint_contexts(decide)


MATMULS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default)
RUNS: dict[str, Callable[..., Tensor]] = {
    "plain": lambda block, x: block(x),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "recomputed": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "selective": lambda block, x: checkpoint(
        block, x, use_reentrant=False, context_fn=saving(CheckpointPolicy.MUST_SAVE, MATMULS)
    ),
}


@pytest.mark.parametrize("how", RUNS)
def test_training_is_the_same_to_the_bit(how: str, tmp_path: Path) -> None:
    def build() -> nn.Module:
        return Sdpa(dropout=0.1, run=RUNS[how])

    alone, watched = trained(build, None), trained(build, tmp_path / "run.db")
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert observed(tmp_path / "run.db").keys() == {1, 2, 3, 4}
    assert not _get_current_function_mode_stack()


def test_checkpointing_counts_each_call_once(tmp_path: Path) -> None:
    found = []
    for how, run in RUNS.items():
        trained(lambda run=run: Sdpa(run=run), tmp_path / f"{how}.db")
        found.append(observed(tmp_path / f"{how}.db"))
    assert len(found[0][1]) == 4
    assert all(other == found[0] for other in found[1:])


def test_written_softmax_is_the_same_to_the_bit(tmp_path: Path) -> None:
    alone, watched = trained(HandWritten, None), trained(HandWritten, tmp_path / "run.db")
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


def test_accumulated_batches_are_combined_and_evaluations_are_not_counted(tmp_path: Path) -> None:
    model, optimizer = made(HandWritten)
    one, two, other = batches(3)
    expected = [references.of_hand_written(model, tokens) for tokens in (one, two)]
    monitor = ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), attention="observe")
    for tokens in (one, two):
        loss_of(model, tokens).backward()
        with torch.no_grad():
            model(other)
        model.eval()
        model(other)
        model.train()
    optimizer.step()
    monitor.close()
    for key, values in observed(tmp_path / "run.db")[1].items():
        a, b = (part[key] for part in expected)
        want = (max(a[0], b[0]), (a[1] + b[1]) / 2, (a[2] + b[2]) / 2)
        assert values == pytest.approx(want, rel=1e-4)


def test_blocks_that_a_loop_calls_one_by_one(tmp_path: Path) -> None:
    model, optimizer = made(HandWritten)
    (tokens,) = batches(1)
    expected = references.of_hand_written(model, tokens)
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), attention="observe"):
        for _ in range(2):  # two micro-batches, equal ones
            x = model.embed(tokens) + model.position[:9]
            for block in model.blocks:
                x = block(x)
            x.square().mean().backward()
        optimizer.step()
    found = observed(tmp_path / "run.db")[1]
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key], rel=1e-4) for key in expected)


def test_a_forward_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    model, optimizer = made(Sdpa)
    tokens = batches(1)[0]
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), attention="observe"):
        for error in (RuntimeError, KeyboardInterrupt):
            broken = model.layers[1].register_forward_pre_hook(raiser(error))
            with pytest.raises(error):
                model(tokens)
            broken.remove()
            assert error is KeyboardInterrupt or not _get_current_function_mode_stack()
            step(model, optimizer, tokens)
            assert not _get_current_function_mode_stack()
        step(model, optimizer, tokens)
    assert observed(tmp_path / "run.db").keys() == {1, 3}  # not what an interrupt cut short
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def raiser(error: type[BaseException]) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error("on purpose")

    return fail


def test_no_activation_is_kept(tmp_path: Path) -> None:
    model, optimizer = made(Sdpa)
    seen: list[weakref.ref[Tensor]] = []
    model.layers[0].register_forward_hook(lambda _, args, out: seen.append(weakref.ref(out)))
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), attention="observe"):
        loss = loss_of(model, batches(1)[0])
        del loss
        gc.collect()
        assert seen[0]() is None
        step(model, optimizer, batches(1)[0])


def test_autocast_does_not_round_the_logits(tmp_path: Path) -> None:
    model, optimizer = made(Sdpa)
    tokens = batches(1)[0]
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), attention="observe"):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, tokens)
        loss.backward()
        optimizer.step()
    assert len(observed(tmp_path / "run.db")[1]) == 4


@pytest.mark.parametrize("how", ["wrapper", "in place", "block", "function"])
def test_compiled_models_say_so_once(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    model, _ = made(Sdpa)
    call: Any = model
    if how == "wrapper":
        call = model = torch.compile(model, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    elif how == "block":
        model.layers[0].compile(backend="eager")
    else:
        call = torch.compile(lambda tokens: model(tokens), backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        caplog.at_level(logging.WARNING, "normscope"),
        ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(1), attention="observe"),
    ):
        for tokens in batches(6):
            step(call, optimizer, tokens) if how != "function" else function_step(call, optimizer, tokens)
    assert observed(tmp_path / "run.db") == {}
    assert len([record for record in caplog.records if "attention" in record.getMessage()]) == 1
    with ns.Run(tmp_path / "run.db") as run:
        assert "monitor.attention" in run.meta
        assert run.query("SELECT count(DISTINCT step) FROM weight") == [(7,)]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= before + 2
    torch._dynamo.reset()


def function_step(call: Any, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    optimizer.zero_grad()
    call(tokens).square().mean().backward()
    optimizer.step()
