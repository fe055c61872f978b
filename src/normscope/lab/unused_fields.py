"""Config fields that have no effect beside certain others; setting one on purpose is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig, flatten

# Fields, the configs in which they have no effect, and why. A sentence follows "has no effect: ".
RULES: Sequence[tuple[tuple[str, ...], Callable[[TrainConfig], bool], str]] = (
    (("vocab_size",), lambda c: True, "the data decides the vocabulary size"),
    (
        ("text", "valid", "tokenizer", "vocabulary"),
        lambda c: c.data.task is not None,
        "a task generates its own words and reads no text",
    ),
    (("vocabulary",), lambda c: c.data.tokenizer != "bpe", "only the bpe tokenizer has a vocabulary to size"),
    (("words", "test_length", "data_seed"), lambda c: c.data.task is None, "it belongs to tasks"),
    (("steps",), lambda c: c.epochs is not None, "epochs decides the number of steps"),
    (("momentum",), lambda c: c.optimization.optimizer != "sgd", "it belongs to sgd"),
    (
        ("beta1", "beta2", "eps"),
        lambda c: c.optimization.optimizer not in ("adam", "adamw"),
        "it belongs to adam and adamw",
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
