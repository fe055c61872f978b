"""The configuration of a lab run: a tree of frozen dataclasses, changed by field name.

Field names are unique in the whole tree, so `{"lr": 1e-3, "norm": "post"}` says which fields a
run or a cell of a sweep changes, without saying which part of the tree they belong to.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from normscope.errors import UsageError
from normscope.lab.config_checks import (
    check_at_least,
    check_choices,
    check_finite,
    check_fractions,
    convert,
    convert_fields,
)
from normscope.lab.constraint_names import check_constraint
from normscope.lab.field_paths import plain_names
from normscope.lab.model import ModelConfig
from normscope.lab.optimizer_names import checked_optimizer
from normscope.option_checks import check_seed
from normscope.schedule import NEVER, Every, Logarithmic, Schedule
from normscope.theory.dynamics.lr_shapes import COOLDOWN, ScheduleName

TokenizerName = Literal["byte", "word", "bpe"]
DecayedParameters = Literal["all", "matrices"]
DtypeName = Literal["float32", "float64", "bfloat16"]
BUILT_IN_TEXT = "pydoc"


@dataclass(frozen=True)
class DataConfig:
    """What the model reads: a formal language (`task`), a text with its tokenizer, or a dataset of your own.

    `text` is a UTF-8 file, or `pydoc` for the prose that comes with Python. Without `valid`, the last
    tenth of the text is held out for evaluation. `tokenizer` is byte, word or bpe, the last with a
    `vocabulary` of that many tokens. `length` is the number of predicted tokens per sequence. A task
    trains on `words` random words of at most `length` symbols, and is also tested on longer ones, up to
    `test_length` (twice `length` by default); `data_seed` is the seed of its words. `task` is a name, a
    `Language` or the `module:name` of one. `dataset` is a `Dataset`, a function of this config that returns
    one, or the `module:name` of either.

    >>> ns.DataConfig(task="dyck-2", length=16).words
    10000
    """

    text: str = BUILT_IN_TEXT
    valid: str | None = None
    task: str | Any | None = None
    dataset: str | Any | None = None
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

    `optimizer` is the name of a class in torch.optim, such as sgd, adamw or Muon (which updates the body's
    matrices, and AdamW the rest), or a function of (parameter groups, this config), or its `module:function`.
    `momentum`, `beta1`, `beta2` and `eps` are for optimizers that have them; None leaves PyTorch's default,
    and a `momentum` of 0.9 for sgd. `weight_decay` acts as the optimizer defines it. `lr` is the peak
    learning rate: it rises linearly for `warmup` steps, then follows `schedule` down to `final` × lr (wsd
    stays at the peak until the last `cooldown` of the run). `decayed`: weight decay applies to `all`
    parameters, PyTorch's default, or to `matrices` only. `clip` is the largest norm of the whole gradient.
    `constraint` holds after every step: fixed-norm, fixed-body-norm, fixed-tensor-norm, spectral-cap:X, a
    `Constraint`, a function of the model, or the `module:name` of one.

    >>> ns.OptimizerConfig(lr=3e-4, schedule="cosine", warmup=100).optimizer
    'adamw'
    """

    optimizer: str | Any = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    decayed: DecayedParameters = "all"
    momentum: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    eps: float | None = None
    schedule: ScheduleName = "constant"
    warmup: int = 0
    final: float = 0.0
    cooldown: float = COOLDOWN
    clip: float | None = None
    constraint: str | Any | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        check_choices(self, schedule=ScheduleName, decayed=DecayedParameters)
        object.__setattr__(self, "optimizer", checked_optimizer(self.optimizer))
        check_constraint(self.constraint)
        check_at_least(self, lr=0, weight_decay=0, warmup=0, eps=0, final=0, cooldown=0)
        check_finite(self)
        check_fractions(self, "momentum", "beta1", "beta2")
        for name in ("final", "cooldown"):
            if getattr(self, name) > 1:
                raise UsageError(f"{name} must be at most 1, as a share; got {getattr(self, name)}")
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip must be more than 0, or None for no clipping, not {self.clip}")


@dataclass(frozen=True)
class TrainConfig:
    """One run of the lab: `model`, `data`, `optimization`, and what happens at which step.

    `seed` decides every random choice; `device` and `dtype` are those of the parameters. A step reads
    `accumulate` batches of `batch` sequences, and minimises the loss of the data, or `loss`, a function of
    (logits, targets) or its `module:function`. `epochs`, if set, decides `steps` from the size of the
    data. `save` is the schedule of checkpoints, `record` of loss and learning rate, `evaluate` of the
    loss on `eval_batches` held-out batches, `saturation` of layers, heads, attention logits and activations
    on held-out data, `spectrum` of the singular values of matrices, `monitor` of updates and gradients. The
    first and the last step are always evaluated, and saved unless `save` is `never`.

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
    loss: str | Any | None = None
    seed: int = 0
    save: Schedule = field(default_factory=lambda: Logarithmic(10))
    record: Schedule = field(default_factory=lambda: Every(1))
    evaluate: Schedule = field(default_factory=lambda: Logarithmic(4))
    eval_batches: int = 8
    saturation: Schedule = NEVER
    spectrum: Schedule = NEVER
    monitor: Schedule = NEVER
    device: str = "cpu"
    dtype: DtypeName = "float32"

    def __post_init__(self) -> None:
        convert_fields(self)
        check_choices(self, dtype=DtypeName)
        check_finite(self)
        check_at_least(self, steps=1, batch=1, accumulate=1, eval_batches=1)
        check_seed(self.seed)
        if self.epochs is not None and self.epochs <= 0:
            raise UsageError(f"epochs must be more than 0, not {self.epochs}")


ConfigT = TypeVar("ConfigT")


def override(config: ConfigT, changes: Mapping[str, Any]) -> ConfigT:
    """Return the config with these leaf fields changed, wherever in the tree they are.

    Text is converted to the type of the field, so values typed on a command line can be given as
    they are. A name may have its path before it: `optimization.lr`, or {"optimization": {"lr": 1e-3}}.

    >>> override(ns.TrainConfig(), {"lr": "1e-2", "norm": "post"}).optimization.lr
    0.01
    """
    return _replaced(config, plain_names(type(config), changes))


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


def completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored config of an earlier release, with the defaults of the fields that came later."""
    return flatten(TrainConfig()) | dict(stored)


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
