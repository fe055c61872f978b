"""Which part of a model each rank has, and which parts are counted.

Sums add up over shards, so each rank sums what is in its own memory and nothing is
gathered. What several ranks have in common must be counted once:

    plain tensor (DDP, replicated under TP)   each rank is a team of its own
    DTensor (FSDP2, hybrid mesh, TP)          the mesh is the team: along a sharded dimension every coordinate
                                              counts its shard, along a replicated one only the first does
    FSDP1 (use_orig_params=True)              the process group is the team, every rank counts its slice
    DeepSpeed's ZeRO 1, 2 and 3               the process group is the team, every rank counts what it updates

Together the ranks of a team have the complete parameter. When several teams have the
same one (FSDP inside each tensor-parallel coordinate), only the team of the lowest rank
counts. A rank without the parameter (another pipeline stage, an empty shard) adds zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from normscope.anatomy import unwrapped
from normscope.errors import ModelError, NormscopeError
from normscope.live.model.module_kinds import module_kinds
from normscope.live.model.ranks import Ranks, raise_first
from normscope.live.model.zero_partitions import (
    gradient_partition,
    is_partitioned,
    partition,
    team_of,
    whole_shape,
)
from normscope.weights.sums.live_sums import DTYPES

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of the whole model, the same on every rank."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None
    kind: str | None = None
    """What the class of its module is: embedding, linear or norm."""

    @property
    def numel(self) -> int:
        """Elements of the whole parameter."""
        return int(np.prod(self.shape, dtype=np.int64))


def tied_names(infos: Iterable[ParameterInfo]) -> dict[str, str]:
    """The name of each tied parameter, and the name of the one that is counted instead."""
    return {info.name: info.tied_to for info in infos if info.tied_to}


@dataclass(frozen=True)
class LocalParameter:
    """A parameter, or a shard of one, in this rank's memory."""

    info: ParameterInfo
    parameter: nn.Parameter
    team: frozenset[int]
    """The ranks that together have the complete parameter."""
    first: bool
    """Whether this rank is the first in the team that has this shard."""


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor in this rank's memory, not copied; a complex tensor as pairs of real numbers."""
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local().detach()
        if hasattr(tensor, "wait"):  # the result of an asynchronous collective
            tensor = tensor.wait()
    elif is_partitioned(tensor):
        tensor = partition(tensor)
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def local_gradient(parameter: Any) -> Tensor | None:
    """The part of the gradient in this rank's memory, sharded like the parameter."""
    if is_partitioned(parameter):
        return gradient_partition(parameter)
    gradient: Any = parameter.grad
    sharded = isinstance(gradient, DTensor) and isinstance(parameter, DTensor)
    if sharded and gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return None if gradient is None else local(gradient)


def local_parameters(model: nn.Module) -> tuple[list[LocalParameter], dict[str, str]]:
    """The parameters of this rank in the model's order, and the reason for each tensor that is skipped.

    Of tied parameters the first is counted; the others name it in `tied_to`.
    """
    slices, kinds = _fsdp1_slices(model), module_kinds(model)
    found: list[LocalParameter] = []
    seen: dict[object, str] = {}
    skipped = {unwrapped(name): "buffer" for name, _ in model.named_buffers()}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        clean = unwrapped(name)
        if _dtype(parameter) is None:
            skipped[clean] = f"{parameter.dtype} is not a floating-point dtype that is measured"
            continue
        storage = _storage(parameter)
        described = clean, kinds.get(clean), seen.get(storage)
        found.append(_local_parameter(described, parameter, slices.get(id(parameter))))
        seen.setdefault(storage, clean)
    return found, skipped


def _local_parameter(
    described: tuple[str, str | None, str | None], parameter: nn.Parameter, fsdp1: _Fsdp1Slice | None
) -> LocalParameter:
    name, kind, tied_to = described
    shape = whole_shape(parameter) if fsdp1 is None else fsdp1.shape
    info = ParameterInfo(name, shape, _dtype(parameter) or "", tied_to, kind)
    if fsdp1 is not None:
        return LocalParameter(info, parameter, fsdp1.team, fsdp1.first)
    if is_partitioned(parameter):
        partition(parameter)  # raises where this rank cannot read it
        return LocalParameter(info, parameter, team_of(parameter), first=True)
    if isinstance(parameter, DTensor):
        team = frozenset(parameter.device_mesh.mesh.flatten().tolist())
        return LocalParameter(info, parameter, team, _first_replica(parameter))
    return LocalParameter(info, parameter, frozenset({Ranks.current().rank}), first=True)


def _dtype(parameter: Tensor) -> str | None:
    """The name of a dtype that can be summed; None for others."""
    if parameter.is_complex() or parameter.dtype in DTYPES:
        return str(parameter.dtype).removeprefix("torch.")
    return None


def _storage(parameter: nn.Parameter) -> object:
    """A key that is equal for tied parameters: the same object, or the same memory in the same layout."""
    if isinstance(parameter, DTensor) or parameter.numel() == 0 or parameter.device.type == "meta":
        return id(parameter)
    return parameter.data_ptr(), tuple(parameter.shape), parameter.stride()


def _first_replica(parameter: DTensor) -> bool:
    """Whether this rank comes first along every replicated dimension of the mesh."""
    coordinate = parameter.device_mesh.get_coordinate()
    if coordinate is None:
        return False
    pairs = zip(coordinate, parameter.placements, strict=True)
    return all(index == 0 for index, placement in pairs if placement.is_replicate())


@dataclass(frozen=True)
class _Fsdp1Slice:
    shape: tuple[int, ...]
    team: frozenset[int]
    first: bool


def _fsdp1_modules(model: nn.Module) -> list[Any]:
    if not dist.is_available():
        return []
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = [module for module in model.modules() if isinstance(module, FullyShardedDataParallel)]
    return [module for module in wrapped if module._handle is not None]


def _fsdp1_slices(model: nn.Module) -> Mapping[int, _Fsdp1Slice]:
    """id of each parameter that FSDP1 presents as a flat slice → its original shape and its team."""
    return dict(item for module in _fsdp1_modules(model) for item in _slices_of(module))


def flat_starts(model: nn.Module) -> dict[int, int]:
    """id of each parameter that FSDP1 presents as a flat slice → where the slice begins in the parameter."""
    found: dict[int, int] = {}
    for module in _fsdp1_modules(model):
        flat = module._handle.flat_param
        for parameter, info in zip(flat._params, flat._shard_param_infos, strict=True):
            found[id(parameter)] = info.intra_param_start_idx or 0
    return found


def gradient_leaves(model: nn.Module) -> list[tuple[Tensor, list[Tensor]]]:
    """The tensors that autograd accumulates gradients in, each with the parameters that it is the memory of.

    They are the parameters themselves, or FSDP1's flat parameters; none where DeepSpeed averages the
    gradients after backward.
    """
    if any(type(module).__name__.startswith("DeepSpeedEngine") for module in model.modules()):
        return []
    flat = [module._handle.flat_param for module in _fsdp1_modules(model)]
    sliced = _fsdp1_slices(model)
    plain = [p for p in model.parameters() if id(p) not in sliced and not is_partitioned(p)]
    return [*((each, list(each._params)) for each in flat), *((p, [p]) for p in plain)]


def _slices_of(module: Any) -> Iterable[tuple[int, _Fsdp1Slice]]:
    flat = module._handle.flat_param
    if flat._params is None:
        raise ModelError(
            "FSDP with use_orig_params=False hides the individual parameters: "
            "pass use_orig_params=True to FullyShardedDataParallel"
        )
    ranks = dist.get_process_group_ranks(module.process_group)
    first = module._handle.uses_sharded_strategy or dist.get_rank() == ranks[0]
    for parameter, shape in zip(flat._params, flat._shapes, strict=True):
        yield id(parameter), _Fsdp1Slice(tuple(shape), frozenset(ranks), first)


@dataclass(frozen=True)
class Layout:
    """The whole model as all ranks agree on it; row i of a record belongs to `infos[i]`."""

    infos: tuple[ParameterInfo, ...]
    """All parameters of the model."""
    parameters: tuple[nn.Parameter, ...]
    """The parameters of this rank; tied ones only once."""
    indices: NDArray[np.int64]
    """The position of each of `parameters` in `infos`."""
    counted: NDArray[np.bool_]
    """Whether this rank adds its sums of the parameter to the record."""
    reported: NDArray[np.bool_]
    """Whether this rank reports the parameter's learning rate and weight decay."""


def agreed_layout(ranks: Ranks, mine: list[LocalParameter], problem: NormscopeError | None = None) -> Layout:
    """Collect what every rank has; every rank must call this. One rank's problem is raised on all."""
    received = ranks.gather(([item.info for item in mine], problem))
    raise_first([trouble for _, trouble in received])
    return _layout(ranks.rank, mine, [infos for infos, _ in received])


def _layout(rank_here: int, mine: list[LocalParameter], everyone: list[list[ParameterInfo]]) -> Layout:
    lowest: dict[str, int] = {}  # the lowest rank that has the parameter
    infos: dict[str, ParameterInfo] = {}
    for rank, theirs in enumerate(everyone):
        for info in theirs:
            lowest.setdefault(info.name, rank)
            infos.setdefault(info.name, info)
    position = {name: i for i, name in enumerate(infos)}
    kept = [item for item in mine if item.info.tied_to is None]
    names = [item.info.name for item in kept]
    counted = [item.first and lowest[item.info.name] in item.team for item in kept]
    return Layout(
        infos=tuple(infos.values()),
        parameters=tuple(item.parameter for item in kept),
        indices=np.array([position[name] for name in names], dtype=np.int64),
        counted=np.array(counted, dtype=bool),
        reported=np.array([lowest[name] == rank_here for name in names], dtype=bool),
    )
