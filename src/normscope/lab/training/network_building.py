"""The network that a config describes: the lab's transformer, or one of the user's own; and its loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from normscope.errors import ModelError
from normscope.lab.data.dataset import Dataset
from normscope.lab.model import ModelConfig, Transformer
from normscope.network.places.programs import failures_of, load_object

LossFunction = Callable[[Tensor, Tensor], Tensor]


def build_network(config: ModelConfig) -> nn.Module:
    """Return the module of a config, with parameters drawn from torch's generator."""
    if config.network is None:
        return Transformer(config)
    function = load_object(config.network)
    with failures_of(config.network, "it was called with the ModelConfig"):
        model = function(config)
    if not isinstance(model, nn.Module) or not list(model.parameters()):
        raise ModelError(
            f"{config.network} must return a torch module with parameters; it returned {type(model).__name__}"
        )
    return model


def check_network(model: nn.Module, name: str | None, data: Dataset, device: torch.device) -> None:
    """Refuse a network of the user's own that does not turn token ids into logits; ours always does."""
    if name is None:
        return
    inputs = data.batch(0, 1, 0).inputs.to(device)
    random, training = torch.get_rng_state(), model.training
    advice = f"its input was a tensor of token ids of shape {tuple(inputs.shape)}"
    with failures_of(f"the model of {name}", advice), torch.no_grad():
        logits = model.eval()(inputs)
    model.train(training)
    torch.set_rng_state(random)
    if not isinstance(logits, Tensor) or logits.shape[:-1] != inputs.shape:
        came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(
            f"the model of {name} must return logits, one row for each of the {tuple(inputs.shape)} tokens; "
            f"it returned {came}"
        )


def build_loss(name: str | None, data: Dataset) -> LossFunction:
    """Return the loss that training minimises: the data's, or the user's own."""
    if name is None:
        return data.loss
    function = load_object(name)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        with failures_of(name, "it was called with (logits, targets)"):
            found = function(logits, targets)
        if not isinstance(found, Tensor) or found.numel() != 1 or not found.requires_grad:
            raise ModelError(f"{name} must return a scalar tensor with a gradient; it returned {found!r}")
        return found.reshape(())

    return loss
