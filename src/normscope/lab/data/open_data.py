"""Open the data that a config names, and complete the config with what the data decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from normscope.errors import UsageError
from normscope.lab.config import DataConfig, TrainConfig
from normscope.lab.data.dataset import Dataset
from normscope.lab.data.tasks import open_task
from normscope.lab.data.text import open_text
from normscope.network.places.programs import failures_of, load_object


def open_data(config: DataConfig, folder: Path) -> Dataset:
    """Open the text, the formal language or the dataset of a config; prepared data is kept in `folder`."""
    if config.dataset is not None:
        return _own_dataset(config.dataset, config)
    return open_task(config, folder) if config.task else open_text(config, folder)


def _own_dataset(name: str, config: DataConfig) -> Dataset:
    with failures_of(name, "call it in Python to see where"):
        found = load_object(name)
        if callable(found) and not isinstance(found, Dataset):
            found = found(config)
    if not isinstance(found, Dataset):
        raise UsageError(
            f"dataset must be a Dataset, or a function of the DataConfig that returns one; {name} gave "
            f"{found!r}"
        )
    return found


def complete_config(config: TrainConfig, data: Dataset) -> TrainConfig:
    """Fill in what the data decides: vocabulary size, longest sequence, number of steps of the epochs."""
    sizes = data.sizes
    longest = config.model.max_length
    if longest is not None and longest < sizes.max_length:
        raise UsageError(
            f"max_length must be at least {sizes.max_length}, the longest sequence of the data; got {longest}"
        )
    model = replace(config.model, vocab_size=sizes.vocab_size, max_length=longest or sizes.max_length)
    steps = config.steps
    if config.epochs is not None:
        steps = max(1, round(config.epochs * sizes.sequences / (config.batch * config.accumulate)))
    return replace(config, model=model, steps=steps)
