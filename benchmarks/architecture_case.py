"""One architecture to be checked: a model, its inputs, and where its blocks and attention maps are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ArchitectureCase:
    """`blocks` are paths of lists of blocks, `attention` patterns on the paths of modules that attend.

    `maps(module, args, kwargs, output)` gives the weights of such a module, [batch, heads, queries, keys],
    or a list of them if it attends several times.
    """

    name: str
    model: nn.Module
    inputs: Any
    blocks: tuple[str, ...]
    attention: tuple[str, ...] = ()
    maps: Callable[..., Any] | None = None
    note: str = ""
    says: tuple[str, ...] = ()
    """Words that the warnings must contain."""
    states: Callable[[nn.Module], dict[str, Tensor]] | None = None
    """The states of a model whose blocks are never called, after a forward pass."""
    ask_for_maps: bool = False
    """Whether its attention returns the weights only with `output_attentions`."""
    hidden: str = ""
    """The path of a list whose states are those of `output_hidden_states`; its blocks are not called."""
    mask: Tensor | None = None
    """1 at real tokens, [batch, sequence]; by default `attention_mask` among the inputs."""

    def with_model(self, model: nn.Module) -> ArchitectureCase:
        """The same with another model."""
        return replace(self, model=model)

    @property
    def real(self) -> Tensor | None:
        """Which tokens are real, [batch, sequence]."""
        mask = self.inputs.get("attention_mask") if isinstance(self.inputs, dict) else None
        found = self.mask if self.mask is not None else mask
        return None if found is None else found.bool()


def grown(model: nn.Module, factor: float = 4.0) -> nn.Module:
    """The model with larger matrices: an initialisation of 0.02 leaves every attention map nearly uniform."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
    return model


def token_inputs(rows: int = 4, length: int = 9, seed: int = 0) -> dict[str, Tensor]:
    """Token ids with padding at the end of the last row."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 50, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    ids[-1, -3:] = mask[-1, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}
