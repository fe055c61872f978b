"""The options of `train` and `sweep` that set fields of a lab config, each named after its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from normscope.cli.options import SCHEDULES, SEED
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.lab.config import TrainConfig

TASKS = (
    *("anbn", "anbncn", "dyck-1", "dyck-2", "shuffle-dyck-2", "majority", "parity", "first"),
    *("ab-star", "aa-star", "tomita-4"),
)
SIZE_NAMES = ("pico", "tiny", "small", "paper")
OPTIMIZER_NAMES = (
    "sgd", "adam", "adamw", "adafactor", "muon", "nadam", "radam",
    "rmsprop", "adagrad", "adadelta", "adamax", "asgd", "rprop",
)  # fmt: skip
CONSTRAINT_NAMES = ("fixed-norm", "fixed-body-norm", "fixed-tensor-norm", "spectral-cap:1")
DTYPE_NAMES = ("float32", "float64", "bfloat16")
OPTIMIZER = f"{', '.join(OPTIMIZER_NAMES)}, or FILE.py:FUNCTION. [default: adamw]"
CONSTRAINT = (
    "What holds after each update: fixed-norm, fixed-body-norm, fixed-tensor-norm, spectral-cap:X, or "
    "FILE.py:FUNCTION of the model."
)
SIZE = "pico, tiny, small, or paper (12 layers, d 768, ff 512, 12 heads). [default: pico]"
NORM = "Placement of layer norms: pre, x + f(LN x); paper, x + LN(f x); post, LN(x + f x). [default: pre]"
SAVE = "When to save checkpoints: log:10, every:100, never, or steps such as 0,10,100. [default: log:10]"
SCHEDULE = "After warmup: constant, linear, cosine, inverse-sqrt or wsd. [default: constant]"

DATA = {
    "task": (str, "NAME", f"A formal language: {', '.join(TASKS)}, or FILE.py:LANGUAGE.", *TASKS),
    "data": (str, "FILE.py:NAME", "A dataset of your own, or a function of the DataConfig that returns one."),
    "text": (str, "FILE", "UTF-8 text to train on. [default: prose that comes with Python]"),
    "valid": (str, "FILE", "Held-out text. [default: the last tenth of the text]"),
    "tokenizer": (str, "NAME", "byte, word or bpe. [default: byte]", "byte", "word", "bpe"),
    "length": (int, "N", "Tokens per sequence; for a task, symbols of its longest word. [default: 64]"),
}
MODEL = {
    "size": (str, "NAME", SIZE, *SIZE_NAMES),
    "norm": (str, "NAME", NORM, "pre", "paper", "post"),
    "model": (
        str,
        "FILE.py:NAME",
        "A model of your own: a function of the ModelConfig that returns a module.",
    ),
}
LOOP = {
    "steps": (int, "N", "Number of updates. [default: 1000]"),
    "epochs": (float, "X", "Passes over the data, instead of a number of updates."),
    "batch": (int, "N", "Sequences per batch. [default: 16]"),
    "optimizer": (str, "NAME", OPTIMIZER, *OPTIMIZER_NAMES),
    "constraint": (str, "NAME", CONSTRAINT, *CONSTRAINT_NAMES),
    "loss": (str, "FILE.py:NAME", "A loss of your own: a function of logits and targets."),
    "spectrum": (str, "WHEN", "When to measure the singular values of matrices: log:4, … [default: never]"),
    "seed": (int, "N", f"{SEED} [default: 0]"),
}
OTHERS = {
    "set_": (list[str], "FIELD=VALUE", "Any other field, such as clip=1 or bias=off; can be repeated."),
}
CONFIG_OPTIONS = DATA | MODEL | LOOP | OTHERS
"""What `train` and `sweep` have in common."""

TRAINING_OPTIONS = {
    "lr": (float, "X", "Peak learning rate. [default: 0.001]"),
    "weight_decay": (float, "X", "Weight decay. [default: 0.01]"),
    "schedule": (str, "NAME", SCHEDULE, *SCHEDULES),
    "warmup": (int, "N", "Steps in which the learning rate rises. [default: 0]"),
    "save": (str, "WHEN", SAVE),
    "saturation": (str, "WHEN", "When to measure saturation, heads and attention: log:4, … [default: never]"),
    "dtype": (str, "NAME", "float32, float64 or bfloat16. [default: float32]", *DTYPE_NAMES),
}
"""What only `train` has: a sweep varies the first two, and takes the others with --set."""


def lab_config(fields: Mapping[str, Any]) -> tuple[TrainConfig, set[str]]:
    """Return the config that the options describe, and the names of the fields that were given."""
    from normscope.lab.config import TrainConfig, override
    from normscope.lab.field_paths import plain_names
    from normscope.lab.model import SIZES

    size = fields["size"] or SIZE_NAMES[0]
    if size not in SIZES:
        raise UsageError(f"--size must be one of {', '.join(SIZES)}, not {size!r}")
    changes = {name: value for name, value in fields.items() if value is not None}
    changes = {name: value for name, value in changes.items() if name not in ("size", "set_")}
    changes = plain_names(TrainConfig, changes)
    changes |= assigned("--set", "clip=1", fields["set_"], changes)
    return override(TrainConfig(model=SIZES[size]), changes), set(changes)


def assigned(
    option: str, example: str, assignments: Sequence[str] | None, others: Mapping[str, Any]
) -> dict[str, str]:
    """Parse repeated FIELD=VALUE options; refuse a field that is given twice."""
    from normscope.lab.config import TrainConfig
    from normscope.lab.field_paths import plain_name

    found: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"{option} takes FIELD=VALUE, such as {option} {example}; got {assignment!r}")
        name = plain_name(TrainConfig, name.replace("-", "_"))
        if name in others or name in found:
            raise UsageError(f"{name} is given twice: once with {option}, and once before; keep one of them")
        found[name] = value
    return found
