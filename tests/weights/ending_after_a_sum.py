"""Forks pairs of processes whose last act is a sum over the ranks; prints how many did not end well.

The switch interval keeps other threads from the interpreter's lock unless the main
thread lets it go, as on a machine with more to do than cores; the group is held, as a
model that is never deleted holds it.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import torch.distributed as dist

from normscope.weights.monitor.sharding import Ranks

held: list[object] = []


def act(rank: int, meeting: str) -> None:
    sys.setswitchinterval(100)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    held.append(dist.group.WORLD)
    Ranks(rank, 2).add_up(np.ones(50))
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
