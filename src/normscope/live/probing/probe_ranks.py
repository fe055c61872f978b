"""Which ranks run a probe: one, if its forward pass is that rank's alone; otherwise all of them together."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from normscope.anatomy import unwrapped as clean_name
from normscope.live.model.ranks import Ranks
from normscope.network.running.compiled import unwrapped


@dataclass(frozen=True)
class ProbeRanks:
    """Who runs the probe, and on which module."""

    module: nn.Module
    runs: bool
    """Whether this rank runs it."""
    together: bool
    """Whether several ranks run it, so that all must take the same decisions."""
    problem: str | None = None
    """Why no rank can run it."""


def inner(model: nn.Module) -> nn.Module:
    """The user's own module inside the wrappers of DDP and of `torch.compile`."""
    before = None
    while model is not before:
        before = model
        model = unwrapped(model)
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
    return model


def probe_ranks(model: nn.Module, ranks: Ranks, names: Collection[str]) -> ProbeRanks:
    """Decide it; every rank must call this. `names` are those of the parameters on all ranks."""
    module = inner(model)
    if ranks.world == 1:
        return ProbeRanks(module, True, False)
    if _has_fsdp1(model):
        return ProbeRanks(module, False, True, "its parameters are sharded by FSDP1: use FSDP2 (fully_shard)")
    here = {clean_name(name) for name, _ in model.named_parameters(remove_duplicate=False)}
    if not all(ranks.gather(here >= set(names))):
        return ProbeRanks(module, False, True, "each rank has a part of its layers (pipeline stages)")
    if any(isinstance(each, DistributedDataParallel) for each in _wrappers(model)) and not _sharded(module):
        return ProbeRanks(module, ranks.rank == 0, False)
    return ProbeRanks(module, True, True)


def tensor_parallel(model: nn.Module) -> bool:
    """Whether ranks have different heads of one layer: parameters sharded by something beside FSDP2."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    managed: set[int] = set()
    for module in model.modules():
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                for each in group.fsdp_params:
                    if each.is_dtensor:
                        return True
                    managed.add(id(each.sharded_param))
    return any(_is_dtensor(p) and id(p) not in managed for p in model.parameters())


def _wrappers(model: nn.Module) -> Iterator[nn.Module]:
    """The model and, if it only wraps another module, that one, and so on."""
    while True:
        yield model
        following = unwrapped(model)
        if following is model:
            following = model.module if isinstance(model, DistributedDataParallel) else model
        if following is model:
            return
        model = following


def _is_dtensor(parameter: Any) -> bool:
    return hasattr(parameter, "_local_tensor")


def _sharded(module: nn.Module) -> bool:
    return any(map(_is_dtensor, module.parameters()))


def _has_fsdp1(model: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and any(isinstance(m, fsdp.FullyShardedDataParallel) for m in model.modules())
