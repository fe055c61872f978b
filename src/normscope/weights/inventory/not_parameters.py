"""Which tensors of a stage are no parameters, and why: judged by name, by their siblings, and by content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from normscope.checkpoints.base import Checkpoint, Tensor
from normscope.checkpoints.buffer_names import (
    CONSTANTS,
    COUNTER,
    DECAYS,
    FROZEN_NORM,
    LOSS,
    MASK,
    buffer_by_name,
    buffer_by_siblings,
    may_be_frozen_norm,
)
from normscope.checkpoints.slot_names import OPTIMIZER, slot_groups
from normscope.weights.inventory.constants import beside_schedules, constants
from normscope.weights.inventory.peeks import FEW, Values, read_values, same_bytes, same_few, shaped
from normscope.weights.inventory.stored_copies import copies

_MOST_OF_MASK = 3
"""Different values of a mask: what counts, what does not, and what is padding."""
_REAL_NUMBERS = re.compile(r"(?:.*[./])?(?:decay|ema_decay|(?:input|output)_(?:min|max))")
"""Names of scalars beside a model that need not be integers."""
_ENOUGH = 1 << 11
"""Values that a mask, weights of a loss or decays are judged by."""
_PARTS_OF_NORM = ("weight", "bias", "running_mean", "running_var")
_SMALL = 1e-3
"""An `eps` up to this keeps a division safe; a larger one is learned, as in graph isomorphism networks."""


def not_parameters(checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor]) -> dict[str, str]:
    """Name → reason, for the tensors that are no parameters.

    `checkpoints` are those of one stage in order, and all have these `tensors`, which have dtypes
    that are measured. Names are judged first, so that little has to be read. Of the parameters that a
    checkpoint declares, only copies are left out.
    """
    declared = frozenset.intersection(*(checkpoint.parameters for checkpoint in checkpoints))
    found: dict[str, str] = {}
    rules: tuple[Callable[[Sequence[Tensor]], dict[str, str]], ...] = (
        lambda left: _declared(checkpoints, left),
        lambda left: _named(checkpoints, left),
        lambda left: _frozen_norms(checkpoints, left),
        lambda left: copies(checkpoints[-1], left),
        lambda left: constants(checkpoints, left),
    )
    for rule in rules:
        found.update(rule([tensor for tensor in tensors if tensor.name not in found]))
    found.update(beside_schedules(checkpoints, [t for t in tensors if t.name not in found], found))
    return {name: why for name, why in found.items() if name not in declared or "copy" in why}


def _named(checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor]) -> dict[str, str]:
    """What names say, except where the values contradict."""
    first, last = checkpoints[0], checkpoints[-1]
    found = by_names(tensors, last.tensors)
    named = [tensor for tensor in tensors if tensor.name in found]
    return {t.name: found[t.name] for t in named if not _misnamed(first, last, t, found[t.name])}


def by_names(tensors: Sequence[Tensor], beside: Iterable[str] = ()) -> dict[str, str]:
    """What names and shapes alone say, including the names of the other tensors; more are in `beside`."""
    names = {name.replace("/", ".") for name in (*beside, *(tensor.name for tensor in tensors))}
    found = {}
    for tensor in tensors:
        reason = buffer_by_name(tensor.name, tensor.shape) or buffer_by_siblings(tensor.name, names)
        if reason is not None:
            found[tensor.name] = reason
    found.update(dict.fromkeys(slot_groups([tensor.name for tensor in tensors]), OPTIMIZER))
    return found


def _declared(checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor]) -> dict[str, str]:
    """Buffers that the checkpoint itself declares as such: a pickled module does, and DeepSpeed."""
    names = {name for checkpoint in checkpoints for name in checkpoint.buffers}
    return {t.name: "a buffer, as the checkpoint says" for t in tensors if t.name in names}


def _frozen_norms(checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor]) -> dict[str, str]:
    """Gains and shifts of batch norms that count no batches, if nothing of the norm changes in the series."""
    first, last = checkpoints[0], checkpoints[-1]
    if first is last or first.digest == last.digest:
        return {}
    found = {}
    for tensor in tensors:
        if may_be_frozen_norm(tensor.name, last.tensors):
            inside = re.sub(r"(?:weight|bias)$", "", tensor.name)
            norm = [last.tensors.get(f"{inside}{part}") for part in _PARTS_OF_NORM]
            if all(same_few(first, last, t) and same_bytes(first, last, t) for t in norm if t is not None):
                found[tensor.name] = FROZEN_NORM
    return found


def _misnamed(first: Checkpoint, last: Checkpoint, tensor: Tensor, reason: str) -> bool:
    """Whether the values show that a tensor is a parameter, although its name gives `reason`.

    A constant that changes between two checkpoints is trained, and so is a counter that is no integer:
    a learned mask, frequencies, a step size. With a single checkpoint, some values are impossible.
    What would have to be fetched or unpacked is not looked at: there the name decides.
    """
    if (reason not in CONSTANTS and reason != COUNTER) or not first.zero_copy(tensor.name):
        return False
    one, other = (_some_values(checkpoint, tensor) for checkpoint in (first, last))
    converted = first.tensors[tensor.name].dtype != last.tensors[tensor.name].dtype
    changed = first is not last and not _equal(one, other, 2.0**-7 if converted else 1e-6)
    if reason == COUNTER:
        return not _whole(other) and (changed or not _usual(tensor.name, float(other.max())))
    return changed or (first is last and _impossible(_first_values(first, tensor), reason))


def _some_values(checkpoint: Checkpoint, tensor: Tensor) -> Values:
    """Values from the beginning, the middle and the end: training changes them everywhere."""
    stored = checkpoint.tensors[tensor.name]
    places = sorted({0, stored.numel // 2, max(0, stored.numel - FEW)})
    parts = [read_values(checkpoint, stored, at, min(stored.numel, at + FEW)) for at in places]
    return np.concatenate(parts)


def _first_values(checkpoint: Checkpoint, tensor: Tensor) -> Values:
    values = read_values(checkpoint, tensor, 0, min(tensor.numel, _ENOUGH))
    return shaped(values, tensor.shape)


def _equal(one: Values, other: Values, rounding: float) -> bool:
    with np.errstate(invalid="ignore"):
        return one.shape == other.shape and bool(
            np.allclose(one, other, rtol=rounding, atol=rounding * 1e-3, equal_nan=True)
        )


def _whole(values: Values) -> bool:
    return bool(np.all(values == np.rint(values)))


def _usual(name: str, value: float) -> bool:
    """Whether a single value is that of a setting: a decay, a range, a small number."""
    return _REAL_NUMBERS.fullmatch(name) is not None or 0 < value <= _SMALL


def _impossible(values: Values, reason: str) -> bool:
    if reason == MASK:
        return np.unique(values).size > _MOST_OF_MASK
    if reason == LOSS:
        return bool((values < 0).any())
    return reason == DECAYS and not (_monotonic(values) or _depends_on_distance(values))


def _monotonic(values: Values) -> bool:
    """Whether the values rise, or fall, along one of the axes."""
    for axis in range(values.ndim):
        steps = np.diff(values, axis=axis)
        if steps.any() and ((steps >= 0).all() or (steps <= 0).all()):
            return True
    return False


def _depends_on_distance(values: Values) -> bool:
    return values.ndim > 1 and bool(np.allclose(values[..., 1:, 1:], values[..., :-1, :-1], rtol=1e-2))
