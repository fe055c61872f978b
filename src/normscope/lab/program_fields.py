"""Config fields that hold objects of the user's own, by name; checked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig, flatten
from normscope.network.places.programs import UNNAMED, failures_of, is_program, load_object

EXPECTED = {
    "network": "a function of the ModelConfig",
    "optimizer": "a function of (parameter groups, OptimizerConfig), or a class of optimizers",
    "loss": "a function of (logits, targets)",
    "constraint": "a function of the model, or an object with start(model) and apply(model)",
    "dataset": "a Dataset, or a function of the DataConfig that returns one",
    "task": "a Language",
}


def check_programs(configs: Sequence[TrainConfig]) -> None:
    """Load each object of the user's own once; refuse names of nothing, and what cannot be called."""
    for field, value in dict.fromkeys(pair for config in configs for pair in _given(config).items()):
        with failures_of(value, "import it in Python to see where"):
            found = load_object(value)
        if not _usable(field, found):
            raise UsageError(f"{field} must be {EXPECTED[field]}; {value} is {found!r}")


def refuse_unnamed(config: TrainConfig) -> None:
    """Refuse objects that other processes cannot import."""
    for field, value in _given(config).items():
        if value.startswith(UNNAMED):
            raise UsageError(
                f"{field} is an {value}, which the processes of a sweep cannot import: define it at the top "
                "of a module or of a .py file, and give that, such as my_file.py:my_function"
            )


def program_files(config: TrainConfig) -> list[str]:
    """The Python files of the user's own that a config names."""
    places = (text.rpartition(":")[0] for text in _given(config).values() if not text.startswith(UNNAMED))
    return [place for place in places if place.endswith(".py")]


def _given(config: TrainConfig) -> dict[str, str]:
    values = flatten(config)
    texts = {field: values[field] for field in EXPECTED if values[field] is not None}
    return {field: text for field, text in texts.items() if text.startswith(UNNAMED) or is_program(text)}


def _usable(field: str, found: Any) -> bool:
    if field == "constraint":
        return callable(found) or (hasattr(found, "start") and hasattr(found, "apply"))
    if field == "dataset":
        return callable(found) or hasattr(found, "evaluations")
    if field == "task":
        return hasattr(found, "follow") and hasattr(found, "sample")
    return callable(found)
