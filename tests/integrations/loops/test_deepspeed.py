"""DeepSpeed's engine without ZeRO and with its stages 1, 2 and 3, in two processes on the CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from normscope.live.monitor import Monitor
from normscope.schedule import every
from tests.integrations.loops.processes import run_processes
from tests.integrations.loops.witness import Outcome, Witness, assert_rows
from tests.live.small_training import batches, tiny

pytest.importorskip("deepspeed", reason="DeepSpeed builds against the installed torch, so dev leaves it out")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
STEPS, ACCUMULATED = 4, 2

KINDS: dict[str, dict[str, Any]] = {
    "engine alone": {"zero_optimization": {"stage": 0}},
    "stage 1": {"zero_optimization": {"stage": 1}},
    "stage 2": {"zero_optimization": {"stage": 2}},
    "stage 2, clipped": {"zero_optimization": {"stage": 2}, "gradient_clipping": 0.1},
    "stage 2, bfloat16": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    "stage 2, offloaded": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
    "stage 3, offloaded": {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}},
    "stage 3": {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}},
    "stage 3, clipped": {"zero_optimization": {"stage": 3}, "gradient_clipping": 0.1},
    "stage 3, bfloat16": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}},
}


def whole(tensor: Any) -> Tensor:
    """The complete parameter; gradients come complete."""
    if not hasattr(tensor, "ds_tensor"):
        return tensor.detach()
    import deepspeed

    with deepspeed.zero.GatheredParameters([tensor]):
        return tensor.detach().clone()


def gradient(parameter: nn.Parameter) -> Tensor | None:
    from deepspeed.utils import safe_get_full_grad

    return safe_get_full_grad(parameter) if parameter.requires_grad else None


def train(path: Path | None, kind: str) -> tuple[Outcome, Any]:
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    model = tiny()
    groups = [
        {"params": [model.embedding.weight, model.inner.weight], "weight_decay": 0.1},
        {"params": [model.inner.bias], "lr": 0.03, "weight_decay": 0.0},
    ]
    sizes = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": ACCUMULATED}
    config = {
        **sizes,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        **KINDS[kind],
    }
    model.never.requires_grad_(False)
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    inner = getattr(optimizer, "optimizer", optimizer)
    rates = {"embedding.weight": 0, "inner.weight": 0, "inner.bias": 1}
    monitor = Monitor(engine, optimizer, path, every(1)) if path else None
    witness, losses = Witness(model, whole, gradient), []
    for number, tokens in enumerate(batches(STEPS * ACCUMULATED)):
        loss = engine(tokens[dist.get_rank() :: 2])
        engine.backward(loss)
        last = number % ACCUMULATED == ACCUMULATED - 1
        if last:
            witness.gradients()
            witness.before()
        named = dict(model.named_parameters())
        now = {id(named[name]): inner.param_groups[i] for name, i in rates.items()}
        engine.step()
        if last:
            witness.after({key: (g["lr"], g["weight_decay"]) for key, g in now.items()})
        losses.append(loss.item())
    outcome = Outcome.of(losses, model, whole)
    if monitor is not None:
        assert monitor.step == STEPS and monitor.close()
    engine.destroy()
    return outcome, witness.rows


def train_all(folder: Path) -> dict[str, tuple[Outcome, Any, Outcome]]:
    found = {}
    for kind in KINDS:
        watched, rows = train(folder / f"{kind}.db", kind)
        found[kind] = watched, rows, train(None, kind)[0]
    return found


def test_every_number_is_that_of_the_engine(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(os.environ, "DS_ACCELERATOR", "cpu")
    found = run_processes(2, train_all, tmp_path)
    assert found.keys() == KINDS.keys()
    for kind, (watched, rows, alone) in found.items():
        assert_rows(tmp_path / f"{kind}.db", rows)
        watched.assert_same(alone)
