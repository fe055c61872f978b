"""Euler's identity ⟨θ, ∇f⟩ = k·f, tested with autograd.

Let f be k-homogeneous in θ. Then the derivative of f in the direction θ is Jθ = k·f.
Reverse-mode autograd gives ⟨u, Jθ⟩ = ⟨θ, ∇⟨u, f⟩⟩ for any u. With u = f it yields
k = ⟨f, Jθ⟩/‖f‖²; with random u, E ⟨u, Jθ − k·f⟩² = ‖Jθ − k·f‖² is the squared residual.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_lists import BlockList
from normscope.network.watching.hidden_states import OUTPUT, Edge, first_states, real_tokens, visiting

PROBES = 4


def euler_degree(
    model: nn.Module, batches: Sequence[Batch], lists: Sequence[BlockList], seed: int = 0
) -> dict[Edge, tuple[float, float]]:
    """For each edge: the degree k, and ‖Jθ − k·f‖/‖f‖ estimated from random probes."""
    generator = torch.Generator().manual_seed(seed)
    products: dict[Edge, list[list[tuple[float, float]]]] = {}
    parameters = list(model.parameters())
    flags = [parameter.requires_grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        # For the backward pass, fused attention recomputes its weights from scores, which are huge in a
        # saturated network: rounding destroys them. Plain softmax keeps the weights themselves.
        with evaluating(model, gradients=True), sdpa_kernel(SDPBackend.MATH):
            for batch in batches:
                for edge, states in _states(model, batch, lists).items():
                    products.setdefault(edge, []).append(_products(states, parameters, generator))
    finally:
        for parameter, flag in zip(parameters, flags, strict=True):
            parameter.requires_grad_(flag)
    return {edge: _combine(rows) for edge, rows in products.items()}


def _states(model: nn.Module, batch: Batch, lists: Sequence[BlockList]) -> dict[Edge, Tensor]:
    found: dict[Edge, Tensor] = {}

    def keep(edge: Edge, states: Tensor) -> None:
        found[edge] = real_tokens(states, edge, batch)

    with visiting(model, lists, keep):
        output = first_states(batch.run(model))
    if output is not None:
        keep(OUTPUT, output)
    return found


def _products(
    states: Tensor, parameters: list[nn.Parameter], generator: torch.Generator
) -> list[tuple[float, float]]:
    """(⟨u, f⟩, ⟨u, Jθ⟩) for u = f and for random u."""
    return [
        (float((u * states.detach()).sum()), _along(u, states, parameters))
        for u in _directions(states.detach(), generator)
    ]


def _directions(states: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    yield states
    for _ in range(PROBES):
        yield torch.randn(states.shape, generator=generator).to(states)


def _along(u: Tensor, states: Tensor, parameters: list[nn.Parameter]) -> float:
    """⟨θ, ∇⟨u, f⟩⟩; 0 if f does not depend on θ."""
    if not states.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(states, parameters, u, retain_graph=True, allow_unused=True)
    pairs = [(p.detach(), g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    return float(sum((p.double() * g.double()).sum() for p, g in pairs))


def _combine(rows: list[list[tuple[float, float]]]) -> tuple[float, float]:
    """Degree and relative residual of the states of all batches together."""
    columns = [(sum(row[i][0] for row in rows), sum(row[i][1] for row in rows)) for i in range(PROBES + 1)]
    (squares, along), probes = columns[0], columns[1:]
    if not squares > 0 or not math.isfinite(squares) or not math.isfinite(along):
        return math.nan, math.nan
    k = along / squares
    residual = sum((ju - k * fu) ** 2 for fu, ju in probes) / len(probes)
    return k, math.sqrt(residual / squares)
