"""Make sure at construction that every rank creates its monitor: a missing one would hang the others.

The ranks meet in the key-value store of the process group, not in a collective: one that some ranks
never join cannot be taken back, and ends only when the group's own timeout has passed.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from normscope.errors import UsageError
from normscope.words import some

_met = [0]
"""How often the ranks have met in this process."""


def meet(rank: int, world: int, timeout: float) -> None:
    """Wait until every rank has called this as often as this one; UsageError after `timeout` seconds."""
    if world == 1:
        return
    store: Any = dist.distributed_c10d._get_default_store()
    _met[0] += 1
    keys = [f"normscope/monitor/{_met[0]}/{each}" for each in range(world)]
    store.set(keys[rank], "here")
    end = time.monotonic() + timeout
    try:
        for key in keys:
            store.wait([key], timedelta(seconds=max(0.001, end - time.monotonic())))
    except (RuntimeError, TimeoutError):  # DistStoreError is a RuntimeError
        missing = [str(each) for each, key in enumerate(keys) if not store.check([key])]
        if missing:
            raise UsageError(_sentence(missing, world, timeout)) from None


def _sentence(missing: list[str], world: int, timeout: float) -> str:
    ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {some(missing)}"
    return (
        f"every rank must create its Monitor, but {ranks} of {world} did not within {timeout:g} seconds: "
        "create it outside of 'if rank == 0' (only rank 0 writes), or give slow ranks more time with "
        "MonitorOptions(rank_timeout=…)"
    )
