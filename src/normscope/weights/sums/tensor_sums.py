"""The additive sums of one tensor by torch, in float64: used where the compiled kernel cannot be.

On any device, for any strides and dtypes. Non-finite values are counted and left out.
"""

from __future__ import annotations

import torch
from torch import Tensor


def tensor_sums(theta: Tensor, previous: Tensor | None = None, initial: Tensor | None = None) -> Tensor:
    """The sums of θ against θ′ and θ₀, a float64 tensor [6] in the order of `Sums`, on θ's device.

    It never waits for a GPU, so the sums of many tensors can be queued and fetched together.
    """
    x = _flat_float64(theta)
    before = None if previous is None else _flat_float64(previous)
    first = None if initial is None else _flat_float64(initial)
    if x.device.type == "cpu":  # on a GPU, looking at the result would mean waiting for it
        found = _sums(x, before, first)
        if bool(found.isfinite().all()):
            return found
    return _sums_of_finite(x, before, first)


def _sums(x: Tensor, before: Tensor | None, first: Tensor | None) -> Tensor:
    """The definition, without a count: a non-finite value makes a non-finite sum."""
    zero = x.new_zeros(())
    dot = sumsq_delta = dot_init = absmax = zero
    if x.numel():
        low, high = x.aminmax()
        absmax = torch.maximum(-low, high)
    if before is not None:
        delta = x - before
        dot, sumsq_delta = before.dot(delta), delta.dot(delta)
    if first is not None:
        dot_init = first.dot(x)
    return torch.stack([x.dot(x), dot, sumsq_delta, dot_init, absmax, zero])


def _sums_of_finite(x: Tensor, before: Tensor | None, first: Tensor | None) -> Tensor:
    """The same over finite values, with the others counted; a pair with one non-finite side adds nothing."""
    finite = x.isfinite()
    kept = x.where(finite, 0.0)
    if before is not None:
        before = before.where(finite & before.isfinite(), kept)  # equal sides: no difference
    if first is not None:
        first = first.where(first.isfinite(), 0.0)
    found = _sums(kept, before, first)
    found[-1] = (~finite).sum(dtype=torch.float64)
    return found


def _flat_float64(tensor: Tensor) -> Tensor:
    """Dense, real, flat and in float64; Apple's GPUs have no float64, so their tensors go to the CPU."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.device.type == "mps":
        tensor = tensor.cpu()
    return tensor.reshape(-1).to(torch.float64)
