"""Writes one file per rank with real FSDP on gloo processes; run by hand.

    python tests/checkpoints/make_fsdp_fixtures.py

Each folder holds the state that every rank saved by itself, as verl does: FSDP2 on two ranks (DTensor), FSDP2
replicated over two groups of two, and FSDP1 on two ranks (ShardedTensor). `whole.pt` is the same model, saved
by one process.
"""

import os
import shutil
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

HERE = (Path(__file__).parent / "fixtures" / "fsdp").absolute()


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(7, 3), torch.nn.Linear(3, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 7)
    )


def sharded(kind):
    made = model()
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType

        wrapped = FullyShardedDataParallel(made, device_id=torch.device("cpu"), use_orig_params=True)
        config = ShardedStateDictConfig(offload_to_cpu=False)
        with FullyShardedDataParallel.state_dict_type(wrapped, StateDictType.SHARDED_STATE_DICT, config):
            return wrapped.state_dict()
    from torch.distributed.fsdp import fully_shard

    shape, names = ((2, 2), ("ddp", "fsdp")) if kind == "hsdp" else ((2,), ("fsdp",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    return fully_shard(made, mesh=mesh).state_dict()


def work(rank, kind, world):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29541")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    folder = HERE / kind / "global_step_5"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(sharded(kind), folder / f"model_world_size_{world}_rank_{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    shutil.rmtree(HERE, ignore_errors=True)
    for kind, world in {"fsdp2": 2, "hsdp": 4, "fsdp1": 2}.items():
        mp.spawn(work, (kind, world), nprocs=world)
    torch.save(model().state_dict(), HERE / "whole.pt")
    (HERE / "VERSION").write_text(f"torch {torch.__version__}\n")
