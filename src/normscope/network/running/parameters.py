"""The parameters of a live model as plain local tensors, each piece of memory once.

Tied parameters share memory; of sharded parameters, this rank's shard is used. Parameters
that cannot be scaled (meta, quantised, integer, float8) are errors that name them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from normscope.errors import ModelError

_QUANTISED_MODULES = ("torch.ao.nn.quantized", "torch.nn.quantized", "bitsandbytes")


@dataclass(frozen=True)
class ParameterMemory:
    """One parameter's local values and their range in its storage, in elements."""

    name: str
    values: Tensor
    start: int
    stop: int
    sharded: bool = False

    @property
    def dense(self) -> bool:
        """Whether the parameter is every element of its range, each once."""
        return self.values.numel() == self.stop - self.start

    def contains(self, other: ParameterMemory) -> bool:
        """Whether scaling this parameter also scales the other."""
        same = (self.values.shape, self.values.stride()) == (other.values.shape, other.values.stride())
        if self.start == other.start and same:
            return True
        return self.dense and self.start <= other.start and other.stop <= self.stop


def local_parameters(model: nn.Module) -> list[ParameterMemory]:
    """Every parameter's memory once, also with tied tensors, transposed ties and slices of another one."""
    _refuse_quantised(model)
    by_storage: dict[tuple[torch.device, int], list[ParameterMemory]] = {}
    for name, parameter in model.named_parameters():
        _refuse(name, parameter)
        memory = _memory(name, parameter)
        by_storage.setdefault((memory.values.device, _address(memory.values)), []).append(memory)
    return [memory for shared in by_storage.values() for memory in _without_overlap(shared)]


def absolute_extremes(values: Tensor, *, need_smallest: bool) -> tuple[float, float]:
    """The smallest nonzero and the largest absolute value; NaN counts as infinite."""
    with torch.no_grad():
        if values.is_complex():
            values = torch.view_as_real(values)
        low, high = torch.aminmax(values)
        largest = max(-low.item(), high.item()) if torch.isfinite(low + 0 * high) else float("inf")
        if not need_smallest:
            return 0.0, largest
        nonzero = values[values != 0].abs()
        return (nonzero.min().item() if nonzero.numel() else float("inf")), largest


def reshard(model: nn.Module) -> None:
    """Make FSDP2 release gathered parameters, so that the shards are the only copy.

    The root module keeps its gathered copy after a forward pass. Scaled shards with an
    unscaled copy, or the reverse, would be two different networks.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")  # slow to import, and loaded if the model uses it
    for module in model.modules():
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            module.reshard()


def any_rank(parameters: Sequence[ParameterMemory], problem: bool) -> bool:
    """Whether any rank has a problem, so that all ranks stop together and none waits for another."""
    if not any(memory.sharded for memory in parameters):  # replicas have the same values, so the same answer
        return problem
    flag = torch.tensor(float(problem), device=parameters[0].values.device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def _local(parameter: Tensor) -> Tensor:
    """A DTensor's shard on this rank, or the tensor itself, with shared memory."""
    local = getattr(parameter, "_local_tensor", parameter)
    return local.detach() if isinstance(local, Tensor) else parameter.detach()


def _address(values: Tensor) -> int:
    return values.untyped_storage().data_ptr()


def _memory(name: str, parameter: Tensor) -> ParameterMemory:
    values = _local(parameter)
    start = int(values.storage_offset())
    sharded = hasattr(parameter, "_local_tensor")
    if values.numel() == 0:
        return ParameterMemory(name, values, start, start, sharded)
    reach = sum((int(size) - 1) * int(step) for size, step in zip(values.shape, values.stride(), strict=True))
    return ParameterMemory(name, values, start, start + reach + 1, sharded)


def _without_overlap(shared: list[ParameterMemory]) -> list[ParameterMemory]:
    """Drop parameters contained in another one; a partial overlap is a ModelError."""
    kept: list[ParameterMemory] = []
    for memory in sorted(shared, key=lambda m: (m.start, -m.stop, -m.values.numel())):
        if kept and memory.start < kept[-1].stop:
            if not kept[-1].contains(memory):
                raise ModelError(
                    f"parameters {kept[-1].name!r} and {memory.name!r} overlap in memory and neither "
                    "contains the other, so each cannot be scaled exactly once: copy one of them"
                )
            continue
        kept.append(memory)
    return kept


def _refuse(name: str, parameter: Tensor) -> None:
    if parameter.is_meta:
        raise ModelError(
            f"parameter {name!r} is on the meta device, which has shapes but no values: load the weights "
            "first"
        )
    if isinstance(parameter, UninitializedParameter):
        raise ModelError(f"parameter {name!r} is not initialised yet: run the model on one batch first")
    dtype = parameter.dtype
    floating = dtype.is_floating_point or dtype.is_complex
    if not floating or "float8" in str(dtype) or "float4" in str(dtype) or parameter.is_quantized:
        raise ModelError(
            f"parameter {name!r} is quantised or integer ({str(dtype).removeprefix('torch.')}) and cannot be "
            "scaled: load the model unquantised, in bfloat16 or float32"
        )


def _refuse_quantised(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if type(module).__module__.startswith(_QUANTISED_MODULES) or hasattr(module, "qweight"):
            raise ModelError(
                f"module {name!r} ({type(module).__name__}) is quantised, and its weights cannot be scaled: "
                "load the model unquantised, in bfloat16 or float32"
            )
