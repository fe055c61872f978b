"""The model of `normscope demo`: trains in about a minute on two cores, and both norm and logits grow."""

from __future__ import annotations

from normscope.lab.config import DataConfig, OptimizerConfig, TrainConfig
from normscope.lab.model import ModelConfig
from normscope.schedule import Logarithmic


def demo_config(seed: int = 0) -> TrainConfig:
    """Return the config of a causal, pre-norm, byte-level language model with a million parameters."""
    return TrainConfig(
        model=ModelConfig(d_model=128, n_layers=4, n_heads=4, d_ff=512),
        data=DataConfig(length=64),
        optimization=OptimizerConfig(
            optimizer="adamw", lr=2e-3, weight_decay=0.01, beta2=0.99, warmup=50, clip=1.0
        ),
        steps=1500,
        batch=4,
        seed=seed,
        save=Logarithmic(12),
        eval_batches=4,
        saturation=Logarithmic(3),  # all of these steps are saved, so the norm is known at each
    )
