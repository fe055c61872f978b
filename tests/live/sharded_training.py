"""One small float64 training, in one process or sharded over several in every way; the rows must agree."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from normscope.anatomy import unwrapped
from normscope.live.monitor import Monitor
from normscope.live.recording import recorder
from normscope.schedule import at_steps
from normscope.weights.sums import live_sums
from tests.groups import leave_group

STEPS = 3
BATCH = 8


class Block(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    """Tied embedding and head, a frozen layer norm, an odd inner width, a parameter no loss depends on."""

    def __init__(self, inner: int = 13):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([Block(8, inner), Block(8, inner)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.layers[0].norm.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Stages(nn.Module):
    """Blocks that do not depend on each other, so that each can be on a rank of its own."""

    def __init__(self, kept: list[int]):
        super().__init__()
        blocks = {str(i): Block(8, 13) for i in range(4)}
        self.layers = nn.ModuleDict({str(i): blocks[str(i)] for i in kept})

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = nn.functional.one_hot(tokens, 11)[..., :8].double()
        return torch.stack([layer(x).sin().mean() for layer in self.layers.values()]).sum()


def make(mode: str) -> nn.Module:
    torch.manual_seed(5)
    if mode == "stages":
        return Stages(list(range(4))).double()
    return Net(inner=16 if "tp" in mode else 13).double()


def shard(model: nn.Module, mode: str, world: int) -> nn.Module:
    if mode == "stages":
        for i in range(4):
            if i % world != dist.get_rank():
                del model.layers[str(i)]
        return model
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if mode.startswith("fsdp1"):
        return _fsdp1(model, mode, world)
    from torch.distributed.fsdp import fully_shard

    if mode.startswith("fsdp2"):
        shape, names = (
            ((2, world // 2), ("replicate", "shard")) if mode == "fsdp2-hybrid" else ((world,), ("shard",))
        )
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    shape, names = ((2, world // 2), ("shard", "tp")) if mode == "tp+fsdp2" else ((world,), ("tp",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    _tensor_parallel(model, mesh["tp"])
    if mode == "tp+fsdp2":
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["shard"])
        fully_shard(model, mesh=mesh["shard"])
    return model


def _fsdp1(model: nn.Module, mode: str, world: int) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    more = {}
    if mode == "fsdp1-hybrid":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        more = {"device_mesh": mesh, "sharding_strategy": ShardingStrategy.HYBRID_SHARD}
    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu"), **more
    )


def _tensor_parallel(model: nn.Module, mesh: dist.DeviceMesh) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def data_share(mode: str, rank: int, world: int) -> slice:
    """Which examples of a batch this rank sees: ranks of one tensor-parallel group see the same."""
    parts, part = (world, rank) if mode.startswith(("ddp", "fsdp")) else (1, 0)
    if mode == "tp+fsdp2":
        parts, part = 2, rank // (world // 2)
    size = BATCH // parts
    return slice(part * size, (part + 1) * size)


def train(
    model: nn.Module, share: slice, path: Path, failing: bool = False, spectral: bool = False
) -> dict[tuple[int, str], float]:
    """Train and record; return the true spectral norm of every matrix that is whole, after each step."""
    named = [(unwrapped(name), p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in named if name.endswith("weight")], "weight_decay": 0.1},
        {"params": [p for name, p in named if name.endswith("bias")], "lr": 0.02},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.0, foreach=False)
    monitor = Monitor(model, optimizer, path, schedule=at_steps([0, 1, 3]), spectral=spectral)
    truth = _spectral_norms(model, 0)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, STEPS + 1):
        recorder.sums_of = _fail_to_sum_updates if failing and step == 1 else live_sums.sums_of
        tokens = torch.randint(0, 11, (BATCH, 5), generator=generator)[share]
        optimizer.zero_grad()
        model(tokens, tokens.roll(1, 1)).backward()
        for parameter in model.parameters():  # instead of clipping, which not every kind of sharding allows
            if parameter.grad is not None:
                parameter.grad.mul_(0.1)
        optimizer.step()
        truth |= _spectral_norms(model, step)
    monitor.close()
    return truth


def _spectral_norms(model: nn.Module, step: int) -> dict[tuple[int, str], float]:
    whole = [(n, p.detach()) for n, p in model.named_parameters() if p.ndim == 2 and type(p) is nn.Parameter]
    return {(step, name): torch.linalg.svdvals(p.double())[0].item() for name, p in whole if p.numel()}


def _fail_to_sum_updates(
    theta: Sequence[Tensor], previous: Sequence[Tensor] | None = None, initial: Sequence[Tensor] | None = None
) -> object:
    if previous is not None:
        raise RuntimeError("this rank cannot sum its updates")
    return live_sums.sums_of(theta, previous, initial)


def _worker(rank: int, world: int, port: int, modes: list[str], folder: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for mode in modes:
        kind = mode.removeprefix("failing ").removeprefix("spectral ")
        model = shard(make(kind), kind, world)
        path = Path(folder) / f"{mode}-{world}.db"
        train(
            model,
            data_share(kind, rank, world),
            path,
            "failing" in mode and rank == world - 1,
            "spectral" in mode,
        )
    leave_group()


def run_sharded(modes: list[str], world: int, folder: Path) -> None:
    """Train once per mode with `world` processes; rank 0 writes <mode>-<world>.db."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_worker, (world, port, modes, str(folder)), nprocs=world)
