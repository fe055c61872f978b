"""What each rank holds of a model, and one all-reduce that makes it whole.

The sums add up over shards, so a rank sums what it has in its own memory and
nothing is gathered. What several ranks hold in common must count once:

    plain tensor (DDP, replicated under TP)   a rank is a team of its own
    DTensor (FSDP2, hybrid mesh, TP)          the mesh is the team: along a sharded dimension every coordinate
                                              counts its shard, along a replicated one only the first
    FSDP1 (use_orig_params=True)              the process group is the team, every rank counts its slice

A team holds a parameter whole; where several teams hold the same (FSDP inside
each tensor-parallel coordinate), the team of the lowest rank counts. A rank
without a parameter (a pipeline stage, an empty shard) adds zero.
"""

from __future__ import annotations

import sys
import time
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
from normscope.errors import ModelError, UsageError
from normscope.weights.sums.live_sums import DTYPES

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of the whole model, the same on every rank."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None

    @property
    def numel(self) -> int:
        """Elements of the whole parameter."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Held:
    """A parameter as this rank holds it."""

    description: ParameterInfo
    parameter: nn.Parameter
    team: frozenset[int]
    """The ranks that hold it whole, together."""
    first: bool
    """Whether this rank is the first of those in the team that hold the same shard."""


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor in this rank's own memory, without a copy; complex numbers as pairs."""
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local().detach()
        if hasattr(tensor, "wait"):  # an asynchronous collective's result
            tensor = tensor.wait()
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def local_gradient(parameter: Any) -> Tensor | None:
    """The gradient's part in this rank's memory, sharded as the parameter is."""
    gradient: Any = parameter.grad
    sharded = isinstance(gradient, DTensor) and isinstance(parameter, DTensor)
    if sharded and gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return None if gradient is None else local(gradient)


def inventory(model: nn.Module) -> tuple[list[Held], dict[str, str]]:
    """The parameters of this rank, tied ones after the one that counts, and what is skipped and why."""
    slices = _fsdp1_slices(model)
    held: list[Held] = []
    seen: dict[object, str] = {}
    skipped = {unwrapped(name): "buffer" for name, _ in model.named_buffers()}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        clean = unwrapped(name)
        if hasattr(parameter, "ds_tensor"):
            raise ModelError(
                "DeepSpeed ZeRO-3 keeps parameters where a monitor cannot sum them: watch it under FSDP2, "
                "or scan the checkpoints it saves"
            )
        if _dtype(parameter) is None:
            skipped[clean] = f"{parameter.dtype} is not a floating-point dtype that is measured"
            continue
        held.append(_held(clean, parameter, slices.get(id(parameter)), seen.get(_storage(parameter))))
        seen.setdefault(_storage(parameter), clean)
    return held, skipped


def _held(name: str, parameter: nn.Parameter, piece: _Slice | None, tied_to: str | None) -> Held:
    shape = tuple(parameter.shape) if piece is None else piece.shape
    description = ParameterInfo(name, shape, _dtype(parameter) or "", tied_to)
    if piece is not None:
        return Held(description, parameter, piece.team, piece.first)
    if isinstance(parameter, DTensor):
        team = frozenset(parameter.device_mesh.mesh.flatten().tolist())
        return Held(description, parameter, team, _first_replica(parameter))
    return Held(description, parameter, frozenset({Ranks.now().rank}), first=True)


def _dtype(parameter: Tensor) -> str | None:
    if parameter.is_complex() or parameter.dtype in DTYPES:
        return str(parameter.dtype).removeprefix("torch.")
    return None


def _storage(parameter: nn.Parameter) -> object:
    """What two names share when they are one parameter: the object, or the very same memory."""
    if isinstance(parameter, DTensor) or parameter.numel() == 0 or parameter.device.type == "meta":
        return id(parameter)
    return parameter.data_ptr(), tuple(parameter.shape), parameter.stride()


def _first_replica(parameter: DTensor) -> bool:
    place = parameter.device_mesh.get_coordinate()
    if place is None:
        return False
    return all(at == 0 for at, kind in zip(place, parameter.placements, strict=True) if kind.is_replicate())


@dataclass(frozen=True)
class _Slice:
    shape: tuple[int, ...]
    team: frozenset[int]
    first: bool


def _fsdp1_modules(model: nn.Module) -> list[Any]:
    if not dist.is_available():
        return []
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = [module for module in model.modules() if isinstance(module, FullyShardedDataParallel)]
    return [module for module in wrapped if module._handle is not None]


def _fsdp1_slices(model: nn.Module) -> Mapping[int, _Slice]:
    """Original shapes of the parameters that FSDP1 shows as flat slices, by the parameter's id."""
    return dict(item for module in _fsdp1_modules(model) for item in _slices_of(module))


def leaves(model: nn.Module) -> list[Tensor]:
    """What autograd accumulates gradients in: the parameters, or under FSDP1 what they are slices of."""
    flat = [module._handle.flat_param for module in _fsdp1_modules(model)]
    sliced = _fsdp1_slices(model)
    return [*flat, *(p for p in model.parameters() if id(p) not in sliced)]


def _slices_of(module: Any) -> Iterable[tuple[int, _Slice]]:
    flat = module._handle.flat_param
    if flat._params is None:
        raise ModelError(
            "FSDP was made with use_orig_params=False, which hides the parameters from everyone: "
            "pass use_orig_params=True to FullyShardedDataParallel"
        )
    ranks = dist.get_process_group_ranks(module.process_group)
    first = module._handle.uses_sharded_strategy or dist.get_rank() == ranks[0]
    for parameter, shape in zip(flat._params, flat._shapes, strict=True):
        yield id(parameter), _Slice(tuple(shape), frozenset(ranks), first)


@dataclass(frozen=True)
class Layout:
    """The whole model as all ranks agree on it; index i of a record is `described[i]`."""

    described: tuple[ParameterInfo, ...]
    indices: NDArray[np.int64]
    parameters: tuple[nn.Parameter, ...]
    """Those of this rank, each with its place in `described`; tied ones only once."""
    counts: NDArray[np.bool_]
    speaks: NDArray[np.bool_]
    """Which of them this rank adds to the sums, and for which it reports lr and weight decay."""


@dataclass(frozen=True)
class Ranks:
    """The processes that train one model together; a single process where nothing is distributed."""

    rank: int = 0
    world: int = 1

    @classmethod
    def now(cls) -> Ranks:
        """The default process group, if there is one."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def agree(self, held: list[Held], problem: str | None = None) -> Layout:
        """Put together what every rank holds; every rank must call it. A problem on one is raised on all."""
        mine = ([item.description for item in held], problem)
        everyone = [mine]
        if self.world > 1:
            everyone = [mine] * self.world
            dist.all_gather_object(everyone, mine)
        for _, trouble in everyone:
            if trouble:
                raise UsageError(trouble)
        return self._layout(held, [descriptions for descriptions, _ in everyone])

    def _layout(self, held: list[Held], everyone: list[list[ParameterInfo]]) -> Layout:
        lowest: dict[str, int] = {}
        whole: dict[str, ParameterInfo] = {}
        for rank, descriptions in enumerate(everyone):
            for item in descriptions:
                lowest.setdefault(item.name, rank)
                whole.setdefault(item.name, item)
        place = {name: i for i, name in enumerate(whole)}
        kept = [item for item in held if item.description.tied_to is None]
        owned = np.array([lowest[item.description.name] == self.rank for item in kept], dtype=bool)
        counts = [item.first and lowest[item.description.name] in item.team for item in kept]
        indices = np.array([place[item.description.name] for item in kept], dtype=np.int64)
        parameters = tuple(item.parameter for item in kept)
        return Layout(tuple(whole.values()), indices, parameters, np.array(counts, dtype=bool), owned)

    def add_up(self, values: Array) -> Array:
        """The element-wise sum over all ranks: the one all-reduce of a record."""
        if self.world == 1:
            return values
        tensor = torch.from_numpy(values)
        if "gloo" not in dist.get_backend() and "mpi" not in dist.get_backend():
            tensor = tensor.to(torch.accelerator.current_accelerator() or "cpu")
        _all_reduce(tensor)
        return tensor.cpu().numpy()


def _all_reduce(tensor: Tensor, patience: float = 1.0) -> None:
    """Add up over the ranks, and wait until gloo's thread has dropped the tensor.

    For that it takes the interpreter's lock, a moment after the sum is there. A program
    whose last act was this sum may be at its end by then, and Python (before 3.14) ends a
    thread that comes for the lock so late in a way that aborts the process.
    """
    held = sys.getrefcount(tensor)
    dist.all_reduce(tensor)
    end = time.monotonic() + patience
    while sys.getrefcount(tensor) > held and time.monotonic() < end:
        time.sleep(1e-5)
