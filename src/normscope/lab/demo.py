"""The model of `normscope demo`: small enough for a minute on two cores, real enough to grow."""

from __future__ import annotations

from normscope.lab.config import DataConfig, OptimizerConfig, TrainConfig
from normscope.lab.model import ModelConfig
from normscope.schedule import Logarithmic


def demo_config(seed: int = 0) -> TrainConfig:
    """A causal pre-norm byte-level language model of about a million parameters."""
    return TrainConfig(
        model=ModelConfig(d_model=128, n_layers=4, n_heads=4, d_ff=512),
        data=DataConfig(length=64),
        optimization=OptimizerConfig(
            optimizer="adamw", lr=1.5e-3, weight_decay=0.01, beta2=0.99, warmup=50, clip=1.0
        ),
        steps=1500,
        batch=4,
        seed=seed,
        save=Logarithmic(12),
    )
