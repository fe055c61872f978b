"""What a lab run is: a tree of frozen dataclasses, and how a flat set of names changes it.

Every field has a name of its own in the whole tree, so `{"lr": 1e-3, "norm": "post"}` is
enough to say what a run or a cell of a sweep changes.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

from normscope.errors import UsageError
from normscope.lab.model import ModelConfig
from normscope.schedule import NEVER, Every, Logarithmic, Schedule
from normscope.schedule import parse as parse_schedule

TokenizerName = Literal["byte", "word", "bpe"]
OptimizerName = Literal["sgd", "adam", "adamw", "adafactor"]
LearningRate = Literal["constant", "linear", "cosine", "inverse-sqrt", "wsd"]
Decayed = Literal["all", "matrices"]
BUILT_IN = "pydoc"


@dataclass(frozen=True)
class DataConfig:
    """What the model reads: a formal language (`task`), or a text with its tokenizer.

    `text` is a UTF-8 file, or `pydoc` for the prose that comes with Python. Without `valid`
    the last tenth of the text is kept for evaluation. `length` is the number of predicted
    tokens in a sequence; of a task, the longest of its `words` to train on, and `test_length`
    the longest word of the longer-than-train split (twice `length` where it is not set).
    """

    text: str = BUILT_IN
    valid: str | None = None
    task: str | None = None
    tokenizer: TokenizerName = "byte"
    vocabulary: int = 1024
    length: int = 64
    test_length: int | None = None
    words: int = 10_000
    data_seed: int = 0

    def __post_init__(self) -> None:
        _check_choices(self, tokenizer=TokenizerName)
        _check_at_least(self, length=1, vocabulary=257, words=1)
        if self.test_length is not None and self.test_length <= self.length:
            raise UsageError(f"test_length must be more than length ({self.length}), not {self.test_length}")


@dataclass(frozen=True)
class OptimizerConfig:
    """How a gradient becomes an update.

    `lr` is the peak learning rate; `warmup` steps rise to it linearly, then `schedule` takes
    over and ends at `final` × lr (WSD decays over its last `cooldown` fraction only).
    `decayed` says whether weight decay takes every parameter, as PyTorch does by default, or
    matrices only. `clip` bounds the norm of the whole gradient.
    """

    optimizer: OptimizerName = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    decayed: Decayed = "all"
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    schedule: LearningRate = "constant"
    warmup: int = 0
    final: float = 0.0
    cooldown: float = 0.2
    clip: float | None = None

    def __post_init__(self) -> None:
        _check_choices(self, optimizer=OptimizerName, schedule=LearningRate, decayed=Decayed)
        _check_at_least(self, lr=0, weight_decay=0, warmup=0, momentum=0)


@dataclass(frozen=True)
class TrainConfig:
    """One run of the lab. `epochs`, where given, decides `steps` from the size of the data.

    A step reads `batch` sequences, `accumulate` times. `save` says when a checkpoint is
    written, `record` when loss and learning rate are, `evaluate` when the held-out data is
    read (`eval_batches` batches of it). First and last step are always evaluated, and saved
    unless `save` is `never`. `saturation` says when layers and heads are measured on held-out
    data, `monitor` when updates and gradients are.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimization: OptimizerConfig = field(default_factory=OptimizerConfig)
    steps: int = 1000
    epochs: float | None = None
    batch: int = 16
    accumulate: int = 1
    seed: int = 0
    save: Schedule = field(default_factory=lambda: Logarithmic(10))
    record: Schedule = field(default_factory=lambda: Every(1))
    evaluate: Schedule = field(default_factory=lambda: Logarithmic(4))
    eval_batches: int = 8
    saturation: Schedule = NEVER
    monitor: Schedule = NEVER
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check_at_least(self, steps=1, batch=1, accumulate=1, eval_batches=1)
        if self.epochs is not None and self.epochs <= 0:
            raise UsageError(f"epochs must be more than 0, not {self.epochs}")


def _check_choices(config: object, **choices: Any) -> None:
    for name, choice in choices.items():
        if getattr(config, name) not in get_args(choice):
            expected = ", ".join(get_args(choice))
            raise UsageError(f"{name} must be one of {expected}, not {getattr(config, name)!r}")


def _check_at_least(config: object, **bounds: float) -> None:
    for name, bound in bounds.items():
        value = getattr(config, name)
        if not value >= bound:  # also refuses NaN
            raise UsageError(f"{name} must be at least {bound}, not {value}")


C = TypeVar("C")
OTHER_NAMES = {
    "learning_rate": "lr",
    "wd": "weight_decay",
    "batch_size": "batch",
    "layers": "n_layers",
    "heads": "n_heads",
    "max_steps": "steps",
    "max_iters": "steps",
    "block_size": "length",
    "vocab": "vocabulary",
    "grad_clip": "clip",
    "language": "task",
}
"""What people call some fields elsewhere; only to suggest the name they have here."""


def field_names(kind: type) -> dict[str, type]:
    """Each leaf field of the tree and the dataclass it belongs to."""
    found: dict[str, type] = {}
    hints = typing.get_type_hints(kind)
    for entry in fields(kind):
        if dataclasses.is_dataclass(hints[entry.name]):
            found |= field_names(hints[entry.name])
        else:
            found[entry.name] = kind
    return found


def override(config: C, changes: Mapping[str, Any]) -> C:
    """The same config with these leaf fields changed, wherever in the tree they live.

    Text is turned into the field's type, so values typed on a command line work as they are.
    """
    names = field_names(type(config))
    for name in changes:
        if name not in names:
            (close,) = difflib.get_close_matches(name, [*names, *OTHER_NAMES], n=1, cutoff=0)
            nearest = OTHER_NAMES.get(close, close)
            raise UsageError(f"there is no field {name!r} in a lab config: did you mean {nearest!r}?")
    return _replaced(config, changes)


def _replaced(config: C, changes: Mapping[str, Any]) -> C:
    hints = typing.get_type_hints(type(config))
    new: dict[str, Any] = {}
    for entry in fields(config):  # type: ignore[arg-type]
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(hints[entry.name]):
            new[entry.name] = _replaced(value, changes)
        elif entry.name in changes:
            new[entry.name] = convert(entry.name, changes[entry.name], hints[entry.name])
    return replace(config, **new)  # type: ignore[type-var]


def convert(name: str, value: Any, hint: Any) -> Any:
    """A value as the field's type; text is parsed, an int may stand for a float."""
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None or (isinstance(value, str) and value.lower() == "none" and type(None) in allowed):
        if type(None) in allowed:
            return None
        raise UsageError(f"{name} cannot be none")
    kind = next(option for option in allowed if option is not type(None))
    try:
        return _as_kind(value, kind)
    except (TypeError, ValueError):
        expected = getattr(kind, "__name__", str(kind))
        raise UsageError(f"{name} must be of type {expected}, not {value!r}") from None


def _as_kind(value: Any, kind: Any) -> Any:
    if kind is Schedule:
        return parse_schedule(value) if isinstance(value, str) else value
    if kind is bool:
        return _as_bool(value)
    if kind is int:
        if float(value) != int(float(value)):
            raise ValueError(value)
        return int(float(value))
    if kind is float:
        return float(value)
    return str(value)  # a name out of a Literal; the dataclass checks it


def _as_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]


def flat(config: object) -> dict[str, Any]:
    """Every leaf field by name, schedules as text: what JSON stores and `override` reads back."""
    found: dict[str, Any] = {}
    for entry in fields(config):  # type: ignore[arg-type]
        value = getattr(config, entry.name)
        if isinstance(value, Schedule):
            found[entry.name] = str(value)
        elif dataclasses.is_dataclass(value):
            found |= flat(value)
        else:
            found[entry.name] = value
    return found
