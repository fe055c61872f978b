"""Which parameters the body has, and norms of parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from normscope.anatomy import in_scope, locate_all


def body_parameters(model: nn.Module) -> list[Tensor]:
    """The parameters of the body: without embeddings and output head."""
    named = dict(model.named_parameters())
    places = locate_all(named, {name: tuple(p.shape) for name, p in named.items()})
    counted = in_scope(list(named), "body", lambda name: (places[name].role, named[name].shape))
    return [named[name] for name in counted]


def parameter_norm(parameters: Iterable[Tensor]) -> float:
    """Euclidean norm of all these parameters together, summed in float64."""
    with torch.no_grad():
        norms = torch._foreach_norm([p.detach() for p in parameters], 2.0, torch.float64)
        return float(torch.linalg.vector_norm(torch.stack(list(norms))))
