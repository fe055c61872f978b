"""What DeepSpeed's ZeRO leaves of each parameter and its gradient on this rank.

ZeRO 1 and 2    the parameter is whole on every rank, its averaged gradient where it is updated;
                so each rank counts the elements that it updates
ZeRO 3          the parameter is empty between uses; each rank has an equal part of its elements, and the
                last parts are padded
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from normscope.errors import ModelError


def is_partitioned(parameter: Tensor) -> bool:
    """Whether ZeRO has divided the parameter, or its gradient, among the ranks."""
    return hasattr(parameter, "ds_tensor") or hasattr(parameter, "_hp_mapping")


def whole_shape(parameter: Any) -> tuple[int, ...]:
    """The shape of the whole parameter."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def team_of(parameter: Any) -> frozenset[int]:
    """The ranks that together have the parameter."""
    group = parameter.ds_process_group if hasattr(parameter, "ds_tensor") else parameter._dp_group
    return frozenset(range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group))


def partition(parameter: Any) -> Tensor:
    """The elements of the parameter that this rank counts, not copied."""
    if hasattr(parameter, "ds_tensor"):
        part = parameter.ds_tensor
        if part.numel() < part.ds_numel:
            raise ModelError("DeepSpeed has moved parameters to NVMe, where they cannot be measured")
        found: Tensor = part.detach().reshape(-1)[: _unpadded(parameter)]
        return found
    mapping = parameter._hp_mapping
    flat: Tensor = parameter.detach().reshape(-1)
    if mapping is None:
        return flat[:0]
    address = mapping.lp_fragment_address
    return flat.narrow(0, address.start, address.numel)


def gradient_partition(parameter: Any) -> Tensor | None:
    """The averaged gradient of these elements, as it is when the step begins; None if there is none."""
    if not parameter.requires_grad:
        return None
    if hasattr(parameter, "ds_tensor"):
        found = parameter._z3_optimizer.get_local_fp32_grad_for_param(parameter)
        return None if found is None else found.detach().reshape(-1)[: _unpadded(parameter)]
    mapping = parameter._hp_mapping
    if mapping is None:
        return torch.empty(0, dtype=parameter.dtype, device=parameter.device)
    try:
        fragment = mapping.get_lp_grad_fragment(parameter._index_in_param_group).detach().reshape(-1)
    except ValueError:  # no backward pass since the last step
        return None
    address = mapping.lp_fragment_address
    if fragment.numel() != address.numel:  # the whole gradient
        fragment = fragment.narrow(0, address.start, address.numel)
    return fragment  # type: ignore[no-any-return]


def _unpadded(parameter: Any) -> int:
    """How many elements of this rank's part are not padding."""
    size, group = parameter.ds_tensor.ds_numel, parameter.ds_process_group
    return int(min(size, max(0, parameter.ds_numel - dist.get_rank(group) * size)))
