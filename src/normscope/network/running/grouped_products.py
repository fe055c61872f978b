"""Products of matrices by groups, as mixtures of experts compute them, in any dtype.

torch's own kernel takes no float64.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

GROUPED = ("grouped_mm", "_grouped_mm")
"""The names of torch's functions that `grouped_product` replaces."""


def grouped_product(
    mat_a: Tensor,
    mat_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """What `torch.nn.functional.grouped_mm` returns, one group after another.

    `offs` has the ends of the groups along the axis that a matrix of rank 2 shares with them.
    """
    if offs is None:
        result = mat_a @ mat_b
    else:
        spans = list(enumerate(pairwise([0, *offs.tolist()])))
        if mat_a.dim() == 2 and mat_b.dim() == 2:
            result = torch.stack([mat_a[:, i:j] @ mat_b[i:j] for _, (i, j) in spans])
        elif mat_a.dim() == 2:
            result = mat_a.new_zeros(mat_a.shape[0], mat_b.shape[-1])
            for group, (i, j) in spans:
                result[i:j] = mat_a[i:j] @ mat_b[group]
        else:
            result = mat_b.new_zeros(mat_a.shape[1], mat_b.shape[1])
            for group, (i, j) in spans:
                result[:, i:j] = mat_a[group] @ mat_b[:, i:j]
    result = result if bias is None else result + bias
    return result if out_dtype is None else result.to(out_dtype)
