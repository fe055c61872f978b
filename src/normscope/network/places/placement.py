"""The device a model runs on, and its precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from normscope.errors import UsageError


@dataclass(frozen=True)
class Placement:
    """Device and dtype of a model; None means the best device available and the model's own dtype."""

    device: str | None = None
    dtype: str | None = None

    def torch_device(self) -> torch.device:
        """The requested device, or the best one available: cuda, then mps, then cpu."""
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"device {self.device!r} cannot be used here ({first_line(error)}): choose cuda, mps or cpu"
            ) from None

    def torch_dtype(self) -> torch.dtype | None:
        """The requested floating-point dtype."""
        if self.dtype is None:
            return None
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise UsageError(f"dtype {self.dtype!r} is not one of float32, float64, bfloat16, float16")
        return dtype

    def place(self, model: nn.Module) -> nn.Module:
        """Move the model to the device and convert it to the dtype."""
        return model.to(device=self.torch_device(), dtype=self.torch_dtype())


def first_line(error: object) -> str:
    """The first line of an error's message, without its full stop; the error's type if it has none."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())
