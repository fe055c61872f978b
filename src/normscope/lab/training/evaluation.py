"""How well a model predicts held-out data."""

from __future__ import annotations

import torch
from torch import nn

from normscope.lab.data.dataset import Dataset, ScoreSums


def evaluate(model: nn.Module, data: Dataset, batches: int, size: int) -> dict[str, float]:
    """Return loss, accuracy and perplexity on the held-out batches, each name prefixed with its split.

    The loss is the mean over all predicted tokens, not over batches, so perplexity is exp(loss).
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    found: dict[str, float] = {}
    with torch.no_grad():
        for split, kept in data.evaluations(batches, size).items():
            total = ScoreSums()
            for inputs, targets in kept:
                total += data.score(model(inputs.to(device)), targets.to(device))
            found |= {f"{split}_{name}": value for name, value in total.measures().items()}
    model.train(was_training)
    return found
