"""Second copies of parameters inside one state dict: moving averages, gradients, optimizer slots.

A copy is recognised by a part of its name (`model_ema`, `shadow`, `m`), and only if the same tensors
are there without it. Where the average alone was saved, it is the model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.checkpoints.buffer_names import parts_of
from normscope.checkpoints.slot_names import OPTIMIZER
from normscope.weights.inventory.peeks import FEW, read_values

_AVERAGES = re.compile(
    r"(?:\w+_)?ema(?:_\w+|\d*)|ema[A-Z]\w*|\w+EMA|(?:averaged|average|avg|swa|polyak|shadow)"
    r"(?:_(?:model|net|network|params?|parameters|weights|module|state|state_dict|copy))?"
    r"|(?:model|net|params?|weights)_(?:averaged|average|avg|swa|polyak|shadow)",
    re.IGNORECASE,
)
_SLOTS = re.compile(
    r"m|v|mu|nu|vr|vc|v_row|v_col|velocity|velocities|momentum|momentums|grads?|gradients?|accum\w*|acc_grads?"
    r"|trace|ms|rms|first_moments?|second_moments?|slow|slow_weights|fp32|master\w*|main_params?|z"
)
_ENOUGH = 0.8
"""The share of a group's tensors that must have a counterpart without the copy's key."""
_LOOKED_AT = 8
"""Pairs of matrices whose values are compared."""
_ALIKE = 0.3
"""Correlation above which two weights are one and its average, not two that were drawn independently."""

_FACTORED = re.compile(r"vr|vc|v_row|v_col")
_SQUARES = re.compile(r"v|nu|vr|vc|v_row|v_col|ms|rms|second_moments?")
_WEIGHT_COPIES = re.compile(r"slow|slow_weights|z")
_WRAPPERS = frozenset(("params", "model", "target", "weights", "module", "state_dict", "net", "network"))

Shapes = Mapping[str, tuple[int, ...]]
Group = dict[str, tuple[str, ...]]
"""Name → the parts of it that remain without the key of the copy."""


def copies(checkpoint: Checkpoint, tensors: Sequence[Tensor]) -> dict[str, str]:
    """Name → what it is a copy of, for each tensor that is there a second time."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    found = _averages(checkpoint, shapes)
    return found | _slots(checkpoint, {name: shape for name, shape in shapes.items() if name not in found})


def _averages(checkpoint: Checkpoint, shapes: Shapes) -> dict[str, str]:
    groups = _groups(shapes, _AVERAGES)
    taken = {name for group in groups.values() for name in group}
    others = _endings((name for name in shapes if name not in taken), shapes)
    found: dict[str, str] = {}
    for key, group in groups.items():
        pairs = {
            name: others[end]
            for name, rest in group.items()
            if (end := ("".join(rest), shapes[name])) in others
        }
        if _is_average(checkpoint, group, pairs):
            for name in group:
                of = f"an averaged copy of {pairs[name]}" if name in pairs else None
                found[name] = of or f"part of the averaged copy {key}"
    return found


def _slots(checkpoint: Checkpoint, shapes: Shapes) -> dict[str, str]:
    """Optimizer slots whose keys are ordinary words: the same names must exist without them."""
    groups = _groups(shapes, _SLOTS)
    plain = {_without_wrapper(parts_of(name)): name for name in shapes}
    found: dict[str, str] = {}
    for key, group in groups.items():
        word = key.rpartition(".")[2]
        factored = _FACTORED.fullmatch(word) is not None
        parameters = {n: plain.get(_without_wrapper(rest)) for n, rest in group.items()}
        same = {n: of for n, of in parameters.items() if of and _slot_of(shapes[n], shapes[of], factored)}
        if same and len(same) >= _ENOUGH * len(group) and _slot_values(checkpoint, word, same):
            found.update(dict.fromkeys(group, OPTIMIZER))
    return found


def _slot_of(shape: tuple[int, ...], parameter: tuple[int, ...], factored: bool) -> bool:
    return shape == parameter or (factored and len(shape) < len(parameter))


def _slot_values(checkpoint: Checkpoint, word: str, pairs: Mapping[str, str]) -> bool:
    """Whether the values are possible: mean squares are not negative, and a second copy is alike."""
    if _SQUARES.fullmatch(word):
        few = [
            read_values(checkpoint, t, 0, min(t.numel, FEW)) for t in map(checkpoint.tensors.get, pairs) if t
        ]
        return all(bool((values >= 0).all()) for values in few)
    return not _WEIGHT_COPIES.fullmatch(word) or _mostly_alike(checkpoint, pairs)


def _without_wrapper(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(parts[1:] if len(parts) > 1 and parts[0] in _WRAPPERS else parts)


def only_averages(names: Iterable[str]) -> str | None:
    """A note for people if every tensor of a model is under the key of a moving average; else None."""
    listed = list(names)
    groups = _groups(listed, _AVERAGES)
    inside = sum(len(group) for group in groups.values())
    if not listed or inside < _ENOUGH * len(listed):
        return None
    keys = " and ".join(sorted(groups))
    return f"only averaged weights are stored (under {keys}): they are measured"


def _groups(names: Iterable[str], pattern: re.Pattern[str]) -> dict[str, Group]:
    """Key → the names under it; a copy is one of the first two parts of a name, or the last one."""
    groups: defaultdict[str, Group] = defaultdict(dict)
    for name in names:
        parts = [part for part in parts_of(name) if part not in ("module", "_orig_mod")]
        last = len(parts) - 1
        at = next((i for i in (0, 1, last) if 0 <= i <= last and last and pattern.fullmatch(parts[i])), None)
        if at is not None:
            key = parts[at] if at == last else ".".join(parts[: at + 1])
            groups[key][name] = tuple(parts[:last] if at == last else parts[at + 1 :])
    return groups


def _endings(names: Iterable[str], shapes: Shapes) -> dict[tuple[str, tuple[int, ...]], str]:
    """Each end of each name, without dots (as latent diffusion writes them), with its shape → the name."""
    found: dict[tuple[str, tuple[int, ...]], str] = {}
    for name in names:
        parts = [part for part in parts_of(name) if part not in ("module", "_orig_mod")]
        for cut in range(min(3, len(parts))):
            found.setdefault(("".join(parts[cut:]), shapes[name]), name)
    return found


def _is_average(checkpoint: Checkpoint, group: Group, pairs: Mapping[str, str]) -> bool:
    """Whether enough of a group has a counterpart with similar values.

    Names are not enough: a branch for the average and one for the maximum have equal names inside.
    """
    matrices = [name for name in group if len(checkpoint.tensors[name].shape) > 0]
    return len(pairs) >= max(1, _ENOUGH * len(matrices)) and _mostly_alike(checkpoint, pairs)


def _mostly_alike(checkpoint: Checkpoint, pairs: Mapping[str, str]) -> bool:
    """Whether most of the matrices are alike; of the vectors, if there are no matrices."""
    matrices = {n: of for n, of in pairs.items() if len(checkpoint.tensors[n].shape) > 1} or pairs
    few = list(matrices.items())[:: max(1, len(matrices) // _LOOKED_AT)]
    return 2 * sum(_alike(checkpoint, name, of) for name, of in few) > len(few)


def _alike(checkpoint: Checkpoint, name: str, other: str) -> bool:
    """Whether the values of two tensors are correlated."""
    one, two = (checkpoint.tensors[each] for each in (name, other))
    count = min(one.numel, 4 * FEW)
    x, y = read_values(checkpoint, one, 0, count), read_values(checkpoint, two, 0, count)
    if count < 8 or not (np.isfinite(x).all() and np.isfinite(y).all()) or not (x.std() and y.std()):
        return count > 1 and np.array_equal(x, y)
    return float(np.corrcoef(x, y)[0, 1]) > _ALIKE
