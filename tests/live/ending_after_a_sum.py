"""Fork pairs of processes that end right after a sum over the ranks; print how many pairs failed.

The long switch interval keeps other threads from the GIL until the main thread releases
it, as on an overloaded machine; the process group stays referenced, as it does by a
model that is never deleted.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import torch.distributed as dist

from normscope.live.model.ranks import Ranks

referenced: list[object] = []


def act(rank: int, meeting: str) -> None:
    sys.setswitchinterval(100)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    referenced.append(dist.group.WORLD)
    Ranks(rank, 2).reduce(np.ones(50))
    dist.destroy_process_group()


def ended_well(meeting: str) -> bool:
    children = []
    for rank in range(2):
        if not (child := os.fork()):
            act(rank, meeting)
            sys.exit()
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children) == 0


if __name__ == "__main__":
    print(sum(not ended_well(f"{sys.argv[1]}/{pair}") for pair in range(int(sys.argv[2]))))
