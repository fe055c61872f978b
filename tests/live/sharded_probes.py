"""One small training with probes and observed attention, in one process or sharded."""

from __future__ import annotations

import copy
import os
import socket
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import normscope as ns
from tests.groups import leave_group
from tests.network.models import HandWritten

STEPS, BATCH = 2, 4


def model() -> nn.Module:
    torch.manual_seed(0)
    return HandWritten()


def shard(net: nn.Module, mode: str, world: int) -> nn.Module:
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if mode == "stages":
        net.blocks[1 - dist.get_rank()] = nn.Identity()
        return net
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    if mode == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        for block in net.blocks:
            plan = {name: ColwiseParallel() for name in ("query", "key", "value")}
            parallelize_module(block, mesh, {**plan, "out": RowwiseParallel()})
            block.heads //= world
        return net
    from torch.distributed.fsdp import fully_shard

    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def train(net: nn.Module, share: slice, path: Path | None, rank: int = 0) -> list[torch.Tensor]:
    """The losses of this rank, and its parameters at the end."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    probe = torch.randint(0, 50, (2, 7), generator=generator)
    monitor = None
    if path is not None:
        given = probe if rank == 0 else probe[:1]  # the batch of rank 0 is everyone's
        monitor = ns.Monitor(
            net, optimizer, path, ns.every(1), network=ns.every(2), batch=given, attention="observe"
        )
    losses = []
    for _ in range(STEPS):
        tokens = torch.randint(0, 50, (BATCH, 6), generator=generator)[share]
        optimizer.zero_grad()
        loss = net(tokens).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if monitor is not None:
        monitor.close()
    local = [getattr(p, "_local_tensor", p).detach().clone() for p in net.parameters()]
    return [*losses, *local, torch.get_rng_state()]


def _worker(rank: int, world: int, port: int, modes: list[str], folder: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for mode in modes:
        size = BATCH // world
        share = slice(rank * size, (rank + 1) * size) if mode in ("ddp", "fsdp2") else slice(0, BATCH)
        results = []
        for path in (None, Path(folder) / f"{mode}.db"):
            torch.manual_seed(0)
            results.append(train(shard(copy.deepcopy(model()), mode, world), share, path, rank))
        same = all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        Path(folder, f"{mode}-{rank}-{'same' if same else 'differs'}").touch()
    leave_group()


def run_sharded(modes: list[str], world: int, folder: Path) -> None:
    """Train once per mode, with a monitor and without; the files that are left say whether that was equal."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_worker, (world, port, modes, str(folder)), nprocs=world)
