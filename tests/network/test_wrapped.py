"""Scaling and saturation of models wrapped for distributed training, in real processes over gloo."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from normscope.errors import ScaleOverflow
from normscope.network.measuring.saturation import saturation
from normscope.network.running.scaling import scaled
from normscope.network.settling.full_text import Limit
from tests.groups import leave_group
from tests.network.models import HandWritten

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without distributed")


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        check_ddp()
        check_fsdp()
    finally:
        leave_group()


def check_ddp():
    torch.manual_seed(0)
    plain = HandWritten()
    compare(plain, nn.parallel.DistributedDataParallel(copy.deepcopy(plain)))


def check_fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain = HandWritten()
    sharded = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in sharded.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    compare(plain, sharded)
    with (
        pytest.raises(ScaleOverflow),
        scaled(sharded, 2.0**127),
    ):  # on every rank, whoever holds the largest value
        pass


def compare(plain, wrapped):
    ids = torch.arange(14).reshape(2, 7)
    with torch.no_grad():
        before = wrapped(ids)
        for _ in range(2):
            with scaled(plain, 64), scaled(wrapped, 64):
                torch.testing.assert_close(wrapped(ids), plain(ids))
                with scaled(plain, 2), scaled(wrapped, 2):
                    torch.testing.assert_close(wrapped(ids), plain(ids))
            assert torch.equal(wrapped(ids), before)
    one, two = (saturation(m, [ids], limit=Limit((2.0**10,))).layers for m in (plain, wrapped))
    for a, b in zip(one, two, strict=True):
        assert abs(a.cosine - b.cosine) < 1e-5


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_wrapped_models_scale_like_plain_ones():
    mp.start_processes(worker, args=(2, free_port()), nprocs=2, start_method="fork")
