"""Run a training in several processes that talk through gloo, and bring back what rank 0 found."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.groups import leave_group

Work = Callable[[Path], Any]


def _enter(rank: int, world: int, port: int, work: Work, folder: Path) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    found = work(folder)
    if rank == 0:
        torch.save(found, folder / "found.pt")
    leave_group()
    sys.stdout.flush()
    os._exit(0)  # a process that has used DeepSpeed's ZeRO 3 does not always end by itself


def run_processes(world: int, work: Work, folder: Path) -> Any:
    """What `work(folder)` returns on rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_enter, (world, port, work, folder), nprocs=world)
    return torch.load(folder / "found.pt", weights_only=False)
