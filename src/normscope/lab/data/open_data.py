"""Open the data that a config names, and complete the config with what the data decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from normscope.lab.config import DataConfig, TrainConfig
from normscope.lab.data.dataset import Dataset
from normscope.lab.data.tasks import open_task
from normscope.lab.data.text import open_text


def open_data(config: DataConfig, folder: Path) -> Dataset:
    """Open the text or the formal language that a config names; prepared data is kept in `folder`."""
    return open_task(config, folder) if config.task else open_text(config, folder)


def complete_config(config: TrainConfig, data: Dataset) -> TrainConfig:
    """Fill in what the data decides: vocabulary size, longest sequence, number of steps of the epochs."""
    sizes = data.sizes
    longest = max(sizes.max_length, config.model.max_length)
    model = replace(config.model, vocab_size=sizes.vocab_size, max_length=longest)
    steps = config.steps
    if config.epochs is not None:
        steps = max(1, round(config.epochs * sizes.sequences / (config.batch * config.accumulate)))
    return replace(config, model=model, steps=steps)
