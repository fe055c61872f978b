"""Models as the paper's released code had them by mistake, to be trained beside correct ones."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from normscope.lab.model import ModelConfig, Transformer


class AcrossTheBatch(Transformer):
    """A transformer that takes the batch axis for the sequence: each token attends to the other sequences.

    PyTorch's encoder layers expect length × batch unless they are told otherwise; the grid of learning rates
    and weight decays was trained like this, and without a mask.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(replace(config, mask="full"))

    def forward(self, input_ids: Tensor) -> Tensor:
        """input_ids: batch × length; returns batch × length × vocab_size."""
        return super().forward(input_ids.T).transpose(0, 1)


def across_the_batch(config: ModelConfig) -> AcrossTheBatch:
    """Build the model of the released grid."""
    return AcrossTheBatch(config)
