"""From a config to its data, and what the data then decides about the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from normscope.lab.config import DataConfig, TrainConfig
from normscope.lab.data import tasks, text
from normscope.lab.data.dataset import Data


def open_data(config: DataConfig, folder: Path) -> Data:
    """The text or the formal language a config names; tokenised text is kept in `folder`."""
    return tasks.prepare(config, folder) if config.task else text.prepare(config, folder)


def fitted(config: TrainConfig, data: Data) -> TrainConfig:
    """The config with what the data decides: vocabulary, longest sequence, steps of so many epochs."""
    longest = max(data.max_length, config.model.max_length)
    model = replace(config.model, vocab_size=data.vocab_size, max_length=longest)
    steps = config.steps
    if config.epochs is not None:
        steps = max(1, round(config.epochs * data.sequences / (config.batch * config.accumulate)))
    return replace(config, model=model, steps=steps)
