"""A loop as torchtitan has it, and one that is resumed on another number of ranks; real processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.schedule import every
from tests.integrations.loops.processes import run_processes
from tests.integrations.loops.witness import Outcome, Rows, Witness, assert_rows
from tests.live.sharded_training import BATCH, Net, _tensor_parallel

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def whole(tensor: Tensor) -> Tensor:
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, share: slice, span: range, witness: Witness
) -> list[float]:
    generator, losses = torch.Generator().manual_seed(1), []
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    for number in range(span.stop):
        tokens = torch.randint(0, 11, (BATCH, 5), generator=generator)[share]
        if number < span.start:
            schedule.step()
            continue
        optimizer.zero_grad()
        loss = model(tokens, tokens.roll(1, 1))
        loss.backward()
        witness.gradients()
        for p in model.parameters():  # instead of clipping: its parameters are on two meshes
            if p.grad is not None:
                p.grad.mul_(0.1)
        witness.around(optimizer)
        schedule.step()
        losses.append(loss.item())
    return losses


def titan(path: Path | None, backend: str) -> tuple[Outcome, Rows]:
    """FSDP2 × tensor parallel, compiled blocks, bfloat16 in forward, float32 parameters."""
    torch.manual_seed(5)
    model = Net(inner=16)
    model.layers[0].norm.requires_grad_(True)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tp"))
    _tensor_parallel(model, mesh["tp"])
    for layer in model.layers:
        layer.compile(backend=backend)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["shard"], mp_policy=policy)
    fully_shard(model, mesh=mesh["shard"], mp_policy=policy)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
    monitor = Monitor(model, optimizer, path, every(1)) if path else None
    half = BATCH // 2
    share = slice(half * (dist.get_rank() // 2), half * (dist.get_rank() // 2 + 1))
    witness = Witness(model, whole)
    losses = steps(model, optimizer, share, range(4), witness)
    if monitor is not None:
        assert monitor.step == 4 and monitor.close()
    return Outcome.of(losses, model, whole), witness.rows


def both(folder: Path) -> tuple[Outcome, Rows, Outcome]:
    watched, rows = titan(folder / "run.db", "inductor")
    return watched, rows, titan(None, "inductor")[0]


def test_a_loop_as_torchtitan_has_it(tmp_path: Path) -> None:
    watched, rows, alone = run_processes(4, both, tmp_path)
    assert_rows(tmp_path / "run.db", rows)
    watched.assert_same(alone)


def part(folder: Path, span: range) -> Rows:
    """Train the steps of this span with FSDP2 on the ranks there are, from the checkpoint before it."""
    torch.manual_seed(5)
    model = Net()
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
    monitor = Monitor(model, optimizer, folder / "run.db", every(1), MonitorOptions(step=span.start))
    state: dict[str, Any] = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    if span.start:
        dcp.load({**state}, checkpoint_id=str(folder / "saved"))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    witness = Witness(model, whole, step=span.start)
    share = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    steps(model, optimizer, share, span, witness)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(state, checkpoint_id=str(folder / "saved"))
    assert monitor.state_dict() == {"step": span.stop} and monitor.close()
    return witness.rows


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 1)])
def test_resuming_on_another_number_of_ranks(first: int, second: int, tmp_path: Path) -> None:
    rows = run_processes(first, partial(part, span=range(3)), tmp_path)
    later = run_processes(second, partial(part, span=range(3, 6)), tmp_path)
    unknown = {"dot_init": None}  # θ₀ is not in the checkpoint
    assert_rows(tmp_path / "run.db", {**rows, **{key: {**row, **unknown} for key, row in later.items()}})
