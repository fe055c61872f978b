"""The configuration of a lab run: a tree of frozen dataclasses, changed by field name.

Field names are unique in the whole tree, so `{"lr": 1e-3, "norm": "post"}` says which fields a
run or a cell of a sweep changes, without saying which part of the tree they belong to.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from normscope.errors import UsageError
from normscope.lab.config_checks import check_at_least, check_choices, convert, convert_fields
from normscope.lab.model import ModelConfig
from normscope.option_checks import check_number, check_seed
from normscope.schedule import NEVER, Every, Logarithmic, Schedule
from normscope.theory.dynamics.lr_shapes import COOLDOWN, ScheduleName

TokenizerName = Literal["byte", "word", "bpe"]
OptimizerName = Literal["sgd", "adam", "adamw", "adafactor"]
DecayedParameters = Literal["all", "matrices"]
BUILT_IN_TEXT = "pydoc"


@dataclass(frozen=True)
class DataConfig:
    """What the model reads: a formal language (`task`), or a text with its tokenizer.

    `text` is a UTF-8 file, or `pydoc` for the prose that comes with Python. Without `valid`, the last
    tenth of the text is held out for evaluation. `tokenizer` is byte, word or bpe, the last with a
    `vocabulary` of that many tokens. `length` is the number of predicted tokens per sequence. A task
    trains on `words` random words of at most `length` symbols, and is also tested on longer ones, up to
    `test_length` (twice `length` by default); `data_seed` is the seed of its words.

    >>> ns.DataConfig(task="dyck-2", length=16).words
    10000
    """

    text: str = BUILT_IN_TEXT
    valid: str | None = None
    task: str | None = None
    tokenizer: TokenizerName = "byte"
    vocabulary: int = 1024
    length: int = 64
    test_length: int | None = None
    words: int = 10_000
    data_seed: int = 0

    def __post_init__(self) -> None:
        convert_fields(self)
        check_choices(self, tokenizer=TokenizerName)
        check_at_least(self, length=1, vocabulary=257, words=1)
        check_seed(self.data_seed, "data_seed")
        if self.test_length is not None and self.test_length <= self.length:
            raise UsageError(f"test_length must be more than length ({self.length}), not {self.test_length}")


@dataclass(frozen=True)
class OptimizerConfig:
    """How a gradient becomes an update.

    `optimizer` is sgd (with `momentum`), adam or adamw (with `beta1`, `beta2` and `eps`), or adafactor;
    `weight_decay` is decoupled, except with adam and sgd. `lr` is the peak learning rate: it rises
    linearly for `warmup` steps, then follows `schedule` down to `final` × lr (wsd stays at the peak until
    the last `cooldown` of the run). `decayed`: weight decay applies to `all` parameters, PyTorch's
    default, or to `matrices` only. `clip` is the largest norm of the whole gradient.

    >>> ns.OptimizerConfig(lr=3e-4, schedule="cosine", warmup=100).optimizer
    'adamw'
    """

    optimizer: OptimizerName = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    decayed: DecayedParameters = "all"
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    schedule: ScheduleName = "constant"
    warmup: int = 0
    final: float = 0.0
    cooldown: float = COOLDOWN
    clip: float | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        check_choices(self, optimizer=OptimizerName, schedule=ScheduleName, decayed=DecayedParameters)
        check_at_least(self, lr=0, weight_decay=0, warmup=0, momentum=0, eps=0, final=0)
        for name in ("beta1", "beta2"):
            check_number(name, getattr(self, name), 0, 1)
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip must be more than 0, or None for no clipping, not {self.clip}")


@dataclass(frozen=True)
class TrainConfig:
    """One run of the lab: `model`, `data`, `optimization`, and what happens at which step.

    `seed` decides every random choice; `device` and `dtype` are those of the parameters. A step reads
    `accumulate` batches of `batch` sequences. `epochs`, if set, decides `steps` from the size of the
    data. `save` is the schedule of checkpoints, `record` of loss and learning rate, `evaluate` of the
    loss on `eval_batches` held-out batches, `saturation` of layers and heads on held-out data, `monitor`
    of updates and gradients. The first and the last step are always evaluated, and saved unless `save` is
    `never`.

    >>> config = ns.TrainConfig(data=ns.DataConfig(task="parity"), steps=500, seed=1)
    >>> str(config.save)
    'log:10'
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
        convert_fields(self)
        check_at_least(self, steps=1, batch=1, accumulate=1, eval_batches=1)
        check_seed(self.seed)
        if self.epochs is not None and self.epochs <= 0:
            raise UsageError(f"epochs must be more than 0, not {self.epochs}")


ConfigT = TypeVar("ConfigT")
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
"""What other tools call some fields; used only to suggest the name they have here."""


def field_names(kind: type) -> dict[str, type]:
    """Map each leaf field of the tree to the dataclass it belongs to."""
    found: dict[str, type] = {}
    hints = typing.get_type_hints(kind)
    for entry in fields(kind):
        if dataclasses.is_dataclass(hints[entry.name]):
            found |= field_names(hints[entry.name])
        else:
            found[entry.name] = kind
    return found


def override(config: ConfigT, changes: Mapping[str, Any]) -> ConfigT:
    """Return the config with these leaf fields changed, wherever in the tree they are.

    Text is converted to the type of the field, so values typed on a command line can be given as
    they are.

    >>> override(ns.TrainConfig(), {"lr": "1e-2", "norm": "post"}).optimization.lr
    0.01
    """
    names = field_names(type(config))
    for name in changes:
        if name not in names:
            (close,) = difflib.get_close_matches(name, [*names, *OTHER_NAMES], n=1, cutoff=0)
            nearest = OTHER_NAMES.get(close, close)
            raise UsageError(f"there is no field {name!r} in a lab config: did you mean {nearest!r}?")
    return _replaced(config, changes)


def _replaced(config: ConfigT, changes: Mapping[str, Any]) -> ConfigT:
    hints = typing.get_type_hints(type(config))
    new: dict[str, Any] = {}
    for entry in fields(config):  # type: ignore[arg-type]
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(hints[entry.name]):
            new[entry.name] = _replaced(value, changes)
        elif entry.name in changes:
            new[entry.name] = convert(entry.name, changes[entry.name], hints[entry.name])
    return replace(config, **new)  # type: ignore[type-var]


def flatten(config: object) -> dict[str, Any]:
    """Return every leaf field by name, schedules as text: the form that is stored as JSON.

    `override(TrainConfig(), flatten(config))` gives the config back.
    """
    found: dict[str, Any] = {}
    for entry in fields(config):  # type: ignore[arg-type]
        value = getattr(config, entry.name)
        if isinstance(value, Schedule):
            found[entry.name] = str(value)
        elif dataclasses.is_dataclass(value):
            found |= flatten(value)
        else:
            found[entry.name] = value
    return found
