"""How well a model predicts data it was not trained on."""

from __future__ import annotations

import torch
from torch import nn

from normscope.lab.data.dataset import Data, Evaluation


def evaluate(model: nn.Module, data: Data, batches: int, size: int) -> dict[str, float]:
    """Loss, accuracy and perplexity on the held-out batches, each name prefixed with its split.

    The loss is the mean over all predicted tokens, so exp(loss) is the true perplexity.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    found: dict[str, float] = {}
    with torch.no_grad():
        for split, kept in data.evaluations(batches, size).items():
            total = Evaluation()
            for inputs, targets in kept:
                total += data.score(model(inputs.to(device)), targets.to(device))
            found |= {f"{split}_{name}": value for name, value in total.measures().items()}
    model.train(was_training)
    return found
