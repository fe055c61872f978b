"""Config fields that have no effect beside certain others; setting one on purpose is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig, flatten
from normscope.lab.optimizer_names import OPTIONS, takes_option
from normscope.network.places.programs import load_object

OF_DATA = ("text", "valid", "tokenizer", "vocabulary", "length", "words", "test_length", "data_seed")


def _finished(config: TrainConfig) -> bool:
    """Whether the dataset is there already, so that nothing in the config can change it."""
    name = config.data.dataset
    return name is not None and not callable(load_object(name))


def _not_taken(option: str) -> Callable[[TrainConfig], bool]:
    return lambda config: not takes_option(config.optimization.optimizer, option)


def _reads_no_text(config: TrainConfig) -> bool:
    return config.data.task is not None


def _no_task(config: TrainConfig) -> bool:
    return config.data.task is None and config.data.dataset is None


# Fields, the configs in which they have no effect, and why. A sentence follows "has no effect: ".
RULES: Sequence[tuple[tuple[str, ...], Callable[[TrainConfig], bool], str]] = (
    (("vocab_size",), lambda c: True, "the data decides the vocabulary size"),
    (("task",), lambda c: c.data.dataset is not None, "the dataset of your own decides what is read"),
    (OF_DATA, _finished, "the dataset was made before; a function of the config could read it"),
    (
        ("text", "valid", "tokenizer", "vocabulary"),
        _reads_no_text,
        "a task generates its own words and reads no text",
    ),
    (
        ("vocabulary",),
        lambda c: c.data.tokenizer != "bpe" and c.data.dataset is None,
        "only the bpe tokenizer has a vocabulary to size",
    ),
    (("words", "test_length", "data_seed"), _no_task, "it belongs to tasks"),
    (
        ("max_length",),
        lambda c: c.model.positions == "none" and c.model.network is None,
        "without positions, a model takes sequences of any length",
    ),
    (("steps",), lambda c: c.epochs is not None, "epochs decides the number of steps"),
    *(
        ((option,), _not_taken(option), "the chosen optimizer has no such option")
        for option in (*OPTIONS, "weight_decay")
    ),
    (
        ("decayed",),
        lambda c: c.optimization.weight_decay == 0 or _not_taken("weight_decay")(c),
        "there is no weight decay",
    ),
    (
        ("final",),
        lambda c: c.optimization.schedule in ("constant", "inverse-sqrt"),
        "it belongs to the schedules linear, cosine and wsd",
    ),
    (("cooldown",), lambda c: c.optimization.schedule != "wsd", "it belongs to the schedule wsd"),
)


def changed_fields(config: TrainConfig) -> set[str]:
    """The fields that do not have their default value: somebody set them on purpose."""
    default = flatten(TrainConfig())
    return {name for name, value in flatten(config).items() if value != default[name]}


def refuse_unused(names: Collection[str], configs: Sequence[TrainConfig]) -> None:
    """Raise UsageError if one of the fields set on purpose has no effect in any of the configs."""
    for fields, has_no_effect, reason in RULES:
        for name in fields:
            if name in names and all(map(has_no_effect, configs)):
                raise UsageError(f"{name} has no effect here: {reason}; leave it out")
