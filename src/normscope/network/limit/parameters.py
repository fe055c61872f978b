"""The parameters of a live model as plain local tensors: each piece of memory once.

Tied parameters share memory, sharded ones are this rank's part, and what cannot
be scaled (meta, quantised, integer, float8) is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from normscope.errors import ModelError

_QUANTISED_MODULES = ("torch.ao.nn.quantized", "torch.nn.quantized", "bitsandbytes")


@dataclass(frozen=True)
class Span:
    """One parameter's local values and the stretch of memory they fill, in elements from its start."""

    name: str
    values: Tensor
    start: int
    stop: int
    sharded: bool = False

    @property
    def dense(self) -> bool:
        """Whether the parameter is every element of its stretch, each once."""
        return self.values.numel() == self.stop - self.start

    def holds(self, other: Span) -> bool:
        """Whether scaling this one scales the other too."""
        same = (self.values.shape, self.values.stride()) == (other.values.shape, other.values.stride())
        if self.start == other.start and same:
            return True
        return self.dense and self.start <= other.start and other.stop <= self.stop


def local_parameters(model: nn.Module) -> list[Span]:
    """Every parameter's memory once: tied tensors, transposed ties and slices of a whole included."""
    _refuse_quantised(model)
    by_storage: dict[tuple[torch.device, int], list[Span]] = {}
    for name, parameter in model.named_parameters():
        _refuse(name, parameter)
        span = _span(name, parameter)
        by_storage.setdefault((span.values.device, _address(span.values)), []).append(span)
    return [span for spans in by_storage.values() for span in _without_overlap(spans)]


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
    """Have FSDP2 give up gathered parameters, so that its shards are the only copy there is.

    The root keeps its gathered copy after a forward pass; scaled shards beside an
    unscaled copy, or the reverse, would be two networks at once.
    """
    if not torch.distributed.is_available():
        return
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def agree(spans: Sequence[Span], problem: bool) -> bool:
    """Whether any rank has a problem, so that all ranks stop together instead of waiting for one."""
    if not any(span.sharded for span in spans):  # replicas hold the same values and decide alike
        return problem
    flag = torch.tensor(float(problem), device=spans[0].values.device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def _local(parameter: Tensor) -> Tensor:
    """A DTensor's shard on this rank, or the tensor itself, sharing memory with it."""
    local = getattr(parameter, "_local_tensor", parameter)
    return local.detach() if isinstance(local, Tensor) else parameter.detach()


def _address(values: Tensor) -> int:
    return values.untyped_storage().data_ptr()


def _span(name: str, parameter: Tensor) -> Span:
    values = _local(parameter)
    start = int(values.storage_offset())
    sharded = hasattr(parameter, "_local_tensor")
    if values.numel() == 0:
        return Span(name, values, start, start, sharded)
    reach = sum((int(size) - 1) * int(step) for size, step in zip(values.shape, values.stride(), strict=True))
    return Span(name, values, start, start + reach + 1, sharded)


def _without_overlap(spans: list[Span]) -> list[Span]:
    """Drop spans that lie inside another one; a partial overlap has no once-only answer."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.stop, -s.values.numel())):
        if kept and span.start < kept[-1].stop:
            if not kept[-1].holds(span):
                raise ModelError(
                    f"parameters {kept[-1].name!r} and {span.name!r} overlap in memory without one holding "
                    "the other, so they cannot be scaled once each: give one of them a copy of its own"
                )
            continue
        kept.append(span)
    return kept


def _refuse(name: str, parameter: Tensor) -> None:
    if parameter.is_meta:
        raise ModelError(
            f"parameter {name!r} is on the meta device, which holds shapes and no values: load the weights "
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
