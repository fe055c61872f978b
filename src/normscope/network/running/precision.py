"""Run a model in float64 without converting it: its weights stay as they are, each operation is widened.

A `TorchFunctionMode` converts every floating-point argument to float64 when it is used, and keeps it there:
a model's own casts to float32 (in normalisations, softmaxes, rotary embeddings) stay float64 too. A weight is
converted for one operation at a time, so the memory is that of one weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normscope.network.running.grouped_products import GROUPED, grouped_product

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)
_FROM_NUMBERS = (torch.full, torch.tensor, torch.scalar_tensor, torch.as_tensor)
_LOOKUPS = (F.embedding, torch.embedding)
_ABOUT_SHAPE = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "data_ptr", "element_size",
    "is_contiguous", "is_floating_point", "is_complex", "__len__", "untyped_storage", "requires_grad_",
    "get_device", "has_names", "is_conj", "is_neg", "is_inference", "__hash__", "__reduce_ex__",
}  # fmt: skip
_ASSIGNMENTS = {
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__",
    "__ipow__", "__imatmul__", "__iand__", "__ior__", "__ixor__",
}  # fmt: skip


def no_float64(model: nn.Module) -> str | None:
    """Why the model cannot be run in float64 here, as the end of a sentence; None if it can."""
    for parameter in model.parameters():
        if hasattr(parameter, "_local_tensor"):
            return "its parameters are sharded"
        if parameter.device.type in ("mps", "meta"):  # Apple's devices have no float64
            return f"its device ({parameter.device.type}) has no float64"
    return None


@contextmanager
def in_float64(wide: bool = True) -> Iterator[None]:
    """Inside, models compute in float64, whatever the dtype of their weights; nothing if `wide` is False."""
    if not wide:
        yield
        return
    with _Float64Mode():
        yield


class _Float64Mode(TorchFunctionMode):
    """Widens the arguments and results of every operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return _getter(func, args)
        if name in _ABOUT_SHAPE:
            return func(*args, **kwargs)
        if func in _CASTS:
            return args[0].double() if args[0].dtype != torch.float64 else args[0]
        if func in _LOOKUPS:  # the rows that are looked up, not the whole table
            return _widened(func(*args, **kwargs))
        if _changes_first(name):
            first, *others = args
            return func(first, *(_like(other, first) for other in others), **kwargs)
        if func in _FROM_NUMBERS and kwargs.get("dtype") is None and _has_float(args[-1] if args else None):
            kwargs = {**kwargs, "dtype": torch.float64}  # float64's smallest number is no float32
        if name in GROUPED:
            func = grouped_product
        out = kwargs.pop("out", None)
        result = _widened(func(*map(_widened, args), **{key: _widened(kwargs[key]) for key in kwargs}))
        return result if out is None else out.copy_(result)


def _has_float(value: Any) -> bool:
    return isinstance(value, float) or (type(value) in (list, tuple) and any(map(_has_float, value)))


def _getter(func: Any, args: Any) -> Any:
    """An attribute: the dtype that the tensor will have in use; anything else as it is."""
    value = func(*args)
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _changes_first(name: str) -> bool:
    """Whether a function changes its first argument in place."""
    return name in _ASSIGNMENTS or (name.endswith("_") and not name.endswith("__"))


def _like(value: Any, target: Any) -> Any:
    """A value that changes a tensor in place: in the tensor's own dtype, which may be a buffer's float32."""
    if not isinstance(value, Tensor) or not isinstance(target, Tensor):
        return _widened(value)
    both_floating = value.is_floating_point() and target.is_floating_point()
    return value.to(target.dtype) if both_floating else value


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        wide = _WIDE.get(value.dtype)
        return value if wide is None or value.is_quantized else value.to(wide)
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    if type(value) in (list, tuple):
        return type(value)(map(_widened, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_widened, value))
    return value
