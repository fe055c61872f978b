"""Two ranks, of which only the first creates a monitor: run by test_ranks_meet in processes of its own."""

import os
import sys
import time

import torch
import torch.distributed as dist

import normscope as ns
from normscope.errors import UsageError


def act(rank: int, folder: str, everyone: bool) -> str:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    began = time.monotonic()
    said = "fine"
    if rank == 0 or everyone:
        try:
            ns.Monitor(model, optimizer, f"{folder}/run.db", rank_timeout=3 if not everyone else 60).close()
        except UsageError as error:
            said = str(error)
    if everyone:
        dist.destroy_process_group()
    return f"{rank}|{time.monotonic() - began < 30}|{said}"


if __name__ == "__main__":
    rank, folder, everyone = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "everyone"
    print(act(rank, folder, everyone), flush=True)
    if not everyone and rank:
        sys.stdin.read()  # there, busy, until rank 0 has answered and the test closes the pipe
    os._exit(0)
