"""The optimizers that a config can name, and the options that each of them takes."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Literal, TypeGuard, get_args

import torch
from torch.optim import Optimizer

from normscope.errors import UsageError
from normscope.network.places.programs import UNNAMED, is_program, load_object

OptimizerName = Literal[
    "sgd", "adam", "adamw", "adafactor", "muon", "nadam", "radam",
    "rmsprop", "adagrad", "adadelta", "adamax", "asgd", "rprop",
]  # fmt: skip
"""Those of today's PyTorch; a class that a later one adds can be named too."""
OPTIONS: dict[str, str] = {"momentum": "momentum", "beta1": "betas", "beta2": "betas", "eps": "eps"}
"""Fields of a config, and the argument of an optimizer that each belongs to."""
REFUSED = {
    "lbfgs": "LBFGS evaluates the loss several times per step, and the lab evaluates it once",
    "sparseadam": "SparseAdam takes sparse gradients only, and a transformer's are dense",
}


def checked_optimizer(name: str | None) -> str:
    """The name as it is stored: that of a class of torch.optim in lower case, or `module:function`."""
    if name is None:
        raise UsageError("optimizer cannot be none")
    lower = name.lower()
    if lower in REFUSED:
        raise UsageError(f"optimizer cannot be {name!r}: {REFUSED[lower]}; choose another, such as adamw")
    if lower in _torch_optimizers():
        return lower
    if is_program(name) or name.startswith(UNNAMED):
        return name
    raise UsageError(
        f"optimizer must be one of {', '.join(get_args(OptimizerName))}, or module:function; got {name!r}"
    )


@cache
def _torch_optimizers() -> dict[str, type[Optimizer]]:
    classes = [kind for kind in vars(torch.optim).values() if inspect.isclass(kind)]
    return {kind.__name__.lower(): kind for kind in classes if _is_optimizer(kind)}


def _is_optimizer(value: Any) -> TypeGuard[type[Optimizer]]:
    return inspect.isclass(value) and issubclass(value, Optimizer) and value is not Optimizer


def optimizer_class(name: str) -> type[Optimizer] | None:
    """The class that a name stands for; None if it stands for a function that builds an optimizer."""
    if name in _torch_optimizers():
        return _torch_optimizers()[name]
    found = load_object(name)
    return found if _is_optimizer(found) else None


def takes_option(name: str, option: str) -> bool:
    """Whether an optimizer has an option of the config; a function of the user's may read any of them."""
    kind = optimizer_class(name)
    if kind is None:
        return True
    if name == "muon":  # its beta1 and beta2 are those of the AdamW beside it
        return option in {*OPTIONS, "weight_decay"}
    argument = inspect.signature(kind).parameters.get(OPTIONS.get(option, option))
    return argument is not None and not (option == "eps" and isinstance(argument.default, tuple))
