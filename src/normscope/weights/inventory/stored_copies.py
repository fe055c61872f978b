"""Second copies of parameters inside one state dict: moving averages, gradients, optimizer slots.

A copy is recognised by a part of its name (`model_ema`, `shadow`, `m`), and only if the same tensors
are there without it. Where the average alone was saved, it is the model.

A copy under an unknown word (`best.h.0.w` beside `h.0.w`) is betrayed by its values, which are
correlated; those of two networks that were drawn apart never are. Whether it is an average, a snapshot
or a second network that began there cannot be seen: both are measured, apart, and the answer says so.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from glob import escape

import numpy as np

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.checkpoints.buffer_names import parts_of
from normscope.checkpoints.slot_names import OPTIMIZER
from normscope.weights.inventory.peeks import FEW, read_values

_AVERAGES = re.compile(
    r"(?:\w+_)?ema(?:_\w+|\d*)|ema[A-Z]\w*|\w+EMA"
    r"|(?:(?:exponential|moving|running|weights?|model|net|params?)_)*"
    r"(?:averaged|averages?|averaging|averager|avg|swa|sma|polyak|shadow)"
    r"(?:_(?:model|net|network|params?|parameters|weights|module|state|state_dict|copy))?|mean_teacher",
    re.IGNORECASE,
)
_SLOTS = re.compile(
    r"m|v|mu|nu|vr|vc|v_row|v_col|velocity|velocities|momentum|momentums|grads?|gradients?|accum\w*|acc_grads?"
    r"|trace|ms|rms|first_moments?|second_moments?|slow|slow_weights|fp32|master\w*|main_params?|z"
    r"|steps?|sum|prev|step_sizes?|ax|eta|lambd|mu_product|row_var|col_var|variance"
)
_LOOSE_SLOTS = re.compile(r"steps?|sum|prev|ax|eta|lambd|variance")
"""Slots whose words are those of layers, too: most of the parameters must have one."""
_ENOUGH = 0.8
"""The share of a group's tensors that must have a counterpart without the copy's key."""
_LOOKED_AT = 8
"""Pairs of matrices whose values are compared."""
_ALIKE = 0.3
"""Correlation above which two weights are one and its average, not two that were drawn independently."""

_FACTORED = re.compile(r"vr|vc|v_row|v_col|row_var|col_var")
_SQUARES = re.compile(
    r"v|nu|vr|vc|v_row|v_col|ms|rms|second_moments?|sum|row_var|col_var|variance|step_sizes?"
)
_ONE_NUMBER = re.compile(r"steps?|eta|lambd|mu|mu_product")
"""Slots that have one number for a parameter of any shape."""
_WEIGHT_COPIES = re.compile(r"slow|slow_weights|z|ax")
_WRAPPERS = frozenset(("params", "model", "target", "weights", "module", "state_dict", "net", "network"))

Shapes = Mapping[str, tuple[int, ...]]
Group = dict[str, tuple[str, ...]]
"""Name → the parts of it that remain without the key of the copy."""
End = tuple[str, tuple[int, ...]]
"""The end of a name without dots, as latent diffusion writes them, and the shape."""
_DEEPEST = 3
"""Parts at the front of a name that may differ between a tensor and its copy."""

_FEWEST_TWINS = 2
"""Matrices that a network has at least: a single one may be equal to another for many reasons."""
_LEAST_TWIN = 0.2
"""The share of all elements that is at least in a copy of the network: heads that begin equal are smaller."""
_STACKS = frozenset(("encoder", "decoder"))
"""Both are one network, even if the second began as a copy of the first."""
Twin = dict[tuple[str, ...], str]
"""What follows the first word of a name → the name, for the matrices under that word."""


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
        pairs = _counterparts(group, others, shapes)
        if _is_average(checkpoint, group, pairs):
            for name in group:
                of = f"an averaged copy of {pairs[name]}" if name in pairs else None
                found[name] = of or f"part of the averaged copy {key}"
    return found


def _counterparts(group: Group, others: Mapping[End, str], shapes: Shapes) -> dict[str, str]:
    """Name → the name of the same tensor outside; a wrapper or half of a decimal may follow the key."""
    best: dict[str, str] = {}
    for cut in range(_DEEPEST):
        found = {
            name: others[end]
            for name, rest in group.items()
            if len(rest) > cut and (end := ("".join(rest[cut:]), shapes[name])) in others
        }
        best = max(best, found, key=len)
    return best


def _slots(checkpoint: Checkpoint, shapes: Shapes) -> dict[str, str]:
    """Optimizer slots whose keys are ordinary words: the same names must exist without them."""
    groups = _groups(shapes, _SLOTS)
    plain = {_without_wrapper(parts_of(name)): name for name in shapes}
    taken = len({name for group in groups.values() for name in group})
    found: dict[str, str] = {}
    for key, group in groups.items():
        word = key.rpartition(".")[2]
        parameters = {n: plain.get(_without_wrapper(rest)) for n, rest in group.items()}
        same = {n: of for n, of in parameters.items() if of and _slot_of(word, shapes[n], shapes[of])}
        few = _LOOSE_SLOTS.fullmatch(word) and 2 * len(same) < len(shapes) - taken
        if same and not few and len(same) >= _ENOUGH * len(group) and _slot_values(checkpoint, word, same):
            found.update(dict.fromkeys(group, OPTIMIZER))
    return found


def _slot_of(word: str, shape: tuple[int, ...], parameter: tuple[int, ...]) -> bool:
    if math.prod(shape) == 1 and _ONE_NUMBER.fullmatch(word):
        return True
    factors = _FACTORED.fullmatch(word) and all(n in (1, *parameter) for n in shape)
    return shape == parameter or (bool(factors) and math.prod(shape) < math.prod(parameter))


def _slot_values(checkpoint: Checkpoint, word: str, pairs: Mapping[str, str]) -> bool:
    """Whether the values are possible: mean squares are not negative, and a second copy is alike."""
    if _SQUARES.fullmatch(word):
        few = [
            read_values(checkpoint, t, 0, min(t.numel, FEW)) for t in map(checkpoint.tensors.get, pairs) if t
        ]
        return all(bool((values >= 0).all()) for values in few)
    return not _WEIGHT_COPIES.fullmatch(word) or mostly_alike(checkpoint, pairs)


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


def _endings(names: Iterable[str], shapes: Shapes) -> dict[End, str]:
    """Each end of each name, with its shape → the name."""
    found: dict[End, str] = {}
    for name in names:
        parts = [part for part in parts_of(name) if part not in ("module", "_orig_mod")]
        for cut in range(min(_DEEPEST, len(parts))):
            found.setdefault(("".join(parts[cut:]), shapes[name]), name)
    return found


def _is_average(checkpoint: Checkpoint, group: Group, pairs: Mapping[str, str]) -> bool:
    """Whether enough of a group has a counterpart with similar values.

    Names are not enough: a branch for the average and one for the maximum have equal names inside.
    """
    matrices = [name for name in group if len(checkpoint.tensors[name].shape) > 0]
    return len(pairs) >= max(1, _ENOUGH * len(matrices)) and mostly_alike(checkpoint, pairs)


def mostly_alike(checkpoint: Checkpoint, pairs: Mapping[str, str]) -> bool:
    """Whether most of the matrices are alike; of the vectors, if there are no matrices.

    Tensors of one value, such as zeros and ones, are equal everywhere and show nothing.
    """
    matrices = {n: of for n, of in pairs.items() if len(checkpoint.tensors[n].shape) > 1} or pairs
    few = list(matrices.items())[:: max(1, len(matrices) // _LOOKED_AT)]
    found = [alike for name, of in few if (alike := _alike(checkpoint, name, of)) is not None]
    return 2 * sum(found) > len(found)


def _alike(checkpoint: Checkpoint, name: str, other: str) -> bool | None:
    """Whether the values of two tensors are correlated; None if they have one value each."""
    one, two = (checkpoint.tensors[each] for each in (name, other))
    count = min(one.numel, 4 * FEW)
    x, y = read_values(checkpoint, one, 0, count), read_values(checkpoint, two, 0, count)
    if not x.size or ((x == x[0]).all() and (y == y[0]).all()):
        return None
    if count < 8 or not (np.isfinite(x).all() and np.isfinite(y).all()) or not (x.std() and y.std()):
        return np.array_equal(x, y)
    return float(np.corrcoef(x, y)[0, 1]) > _ALIKE


def twin_networks(checkpoint: Checkpoint, tensors: Sequence[Tensor]) -> list[str]:
    """The first words of two networks that are alike; one word if the other one has none; else nothing."""
    groups = _by_first_word(tensors)
    whole = {parts_of(t.name): t.name for t in tensors if len(t.shape) > 1}
    sizes = {word: sum(checkpoint.tensors[n].numel for n in group.values()) for word, group in groups.items()}
    least = _LEAST_TWIN * sum(tensor.numel for tensor in tensors)
    words = [word for word in groups if not word.isdigit() and sizes[word] >= least]
    for i, word in enumerate(words):
        if _is_twin(checkpoint, groups[word], {k: n for k, n in whole.items() if k[0] != word}):
            return [word]
        for other in words[:i]:
            if {word, other} != _STACKS and _is_twin(checkpoint, groups[word], groups[other]):
                return [other, word]
    return []


def twin_note(words: Sequence[str]) -> str:
    """A sentence about them, for people."""
    beside = f"{words[0]}.*" if len(words) > 1 else "the others"
    return (
        f"{words[-1]}.* has the same names as {beside} and similar values: if it is a copy, "
        f"leave it out with --skip '{escape(words[-1])}.*'"
    )


def _by_first_word(tensors: Sequence[Tensor]) -> dict[str, Twin]:
    found: defaultdict[str, Twin] = defaultdict(dict)
    for tensor in tensors:
        word, *rest = parts_of(tensor.name)
        if rest and len(tensor.shape) > 1 and tensor.name.startswith(word):
            found[word][tuple(rest)] = tensor.name
    return found


def _is_twin(checkpoint: Checkpoint, one: Twin, other: Mapping[tuple[str, ...], str]) -> bool:
    """Whether most of a group is in the other one with the same shapes and similar values."""
    stored = checkpoint.tensors
    pairs = {n: other[k] for k, n in one.items() if k in other and stored[other[k]].shape == stored[n].shape}
    shared = sum(stored[name].numel for name in pairs)
    total = sum(stored[name].numel for name in one.values())
    return len(pairs) >= _FEWEST_TWINS and shared >= _ENOUGH * total and mostly_alike(checkpoint, pairs)
