"""The parameters of a live module as a checkpoint, so that what reads files reads them too."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from normscope.checkpoints import base
from normscope.checkpoints.series.series import CheckpointSeries, Entry
from normscope.errors import ModelError

SAMPLE = 1 << 12
"""Bytes of each parameter in the digest."""
LAB = "normscope.lab."


class ModuleCheckpoint(base.Checkpoint):
    """Parameters of a module, read where they are; they must not change meanwhile."""

    def __init__(self, module: nn.Module) -> None:
        self._values = dict(module.named_parameters())
        for name, value in self._values.items():
            _check(name, value)
        self.format = "module"
        self.tensors = {name: _described(name, value) for name, value in self._values.items()}
        self.skipped: Mapping[str, str] = {}
        self.step = None
        self.notes = ()
        self.parameters = frozenset(self._values)
        self._last: tuple[str, bytes] = ("", b"")

    @property
    def nbytes(self) -> int:
        """Size of all parameters."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def digest(self) -> str:
        """A hash of names, shapes and the beginning of each parameter."""
        found = hashlib.sha256()
        for name, tensor in self.tensors.items():
            found.update(f"{name}{tensor.shape}{tensor.dtype}".encode())
            found.update(_bytes(self._values[name].detach().flatten()[: SAMPLE // 4]))
        return found.hexdigest()[:32]

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes of a parameter; the last one is kept, because tensors are read in parts."""
        last, raw = self._last
        if last != name:
            raw = _bytes(self._values[name].detach())
            self._last = (name, raw)
        return raw[start:stop]

    def close(self) -> None:
        """Forget the parameters."""
        self._values, self._last = {}, ("", b"")


def module_series(module: nn.Module) -> CheckpointSeries:
    """A series of one checkpoint, at step 0: the module as it is."""
    name = type(module).__name__
    entry = Entry(name, 0, "", None, name, lambda: ModuleCheckpoint(module))
    return CheckpointSeries(name, (entry,), (name,))


def module_document(module: nn.Module) -> Mapping[str, Any]:
    """What the config of a module says; its heads are those of torch's attention if it has no config."""
    config = getattr(module, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        return dict(config.to_dict())
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        family = {"model_type": "normscope-lab"} if type(config).__module__.startswith(LAB) else {}
        return dataclasses.asdict(config) | family
    counts = {each.num_heads for each in module.modules() if isinstance(each, nn.MultiheadAttention)}
    return {"num_attention_heads": counts.pop()} if len(counts) == 1 else {}


def _check(name: str, value: Tensor) -> None:
    if isinstance(value, DTensor) or value.is_meta:
        what = (
            "distributed over ranks" if isinstance(value, DTensor) else "on the meta device, without values"
        )
        raise ModelError(f"{name} is {what}: save a checkpoint and measure that")


def _described(name: str, value: Tensor) -> base.Tensor:
    dtype = str(value.dtype).removeprefix("torch.")
    return base.Tensor(name, tuple(value.shape), dtype, name)


def _bytes(value: Tensor) -> bytes:
    import torch

    flat = value.contiguous().cpu().flatten()
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""
