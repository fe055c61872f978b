"""The fixed batch of a probe: what the user gave, copied, and moved to where the model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normscope.network.running.batches import Batch, as_batch, as_batches


def probe_batches(value: Any) -> list[Batch]:
    """One batch, of whatever the model's forward takes; or several, as a list of dicts or of `Batch`."""
    several = isinstance(value, list) and value and all(isinstance(each, (Batch, Mapping)) for each in value)
    batches = as_batches(value) if several else [as_batch(value)]
    return [_mapped(batch, lambda tensor: tensor.detach().clone()) for batch in batches]


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on another device."""
    return _mapped(batch, lambda tensor: tensor.to(device))


def device_of(model: nn.Module) -> torch.device:
    """Where a model takes its inputs: the device of its first parameter; of an offloaded one, its mesh's."""
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and mesh.device_type != "cpu":
            return torch.device(mesh.device_type, torch.accelerator.current_device_index())
        if not parameter.is_meta:
            return parameter.device
    return torch.device("cpu")


def _mapped(batch: Batch, change: Any) -> Batch:
    """A copy of the batch with every tensor in it changed, also inside lists and dicts."""

    def each(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) else value

    tensors = {name: each(getattr(batch, name)) for name in ("mask", "decoder_mask", "labels")}
    args, kwargs = tree_map(each, tuple(batch.args)), {k: tree_map(each, v) for k, v in batch.kwargs.items()}
    return replace(batch, args=args, kwargs=kwargs, **tensors)
