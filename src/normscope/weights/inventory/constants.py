"""Constants among the tensors of a stage, recognised by content: masks, tables, frequencies, indices.

A tensor that differs between the first and the last checkpoint is a parameter. Of the others a few
values are looked at, and only what still may be a constant is read whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from normscope.anatomy import locate
from normscope.checkpoints.base import WIDTHS, Checkpoint, Tensor
from normscope.checkpoints.buffer_names import COUNTER, ROTARY, SCHEDULE, suspected
from normscope.weights.inventory.masks import VERY_NEGATIVE, filter_bank, mask
from normscope.weights.inventory.number_series import is_smooth, number_series
from normscope.weights.inventory.peeks import (
    FEW,
    MOST,
    Sample,
    Values,
    read_values,
    rounding_of,
    same_bytes,
    same_few,
    shaped,
)
from normscope.weights.inventory.position_tables import position_table, unit_circle

Rule = Callable[[Sample, frozenset[str]], "str | None"]

RULES: tuple[Rule, ...] = (mask, number_series, position_table, filter_bank)
_WINDOW = 1 << 16
"""Bytes of the first look at a tensor that is not mapped: what a remote read fetches at least."""
_ROWS_PEEKED, _ROW_PEEKED = 4, 1024
_ROWS_OF_COLUMN = 12
_LARGE_COUNT = 1000  # larger than any trained number that is alone in its tensor
_WEIGHT = re.compile(r"(?:^|[./])(?:weight|bias|kernel|w|b)$")
_COUNTS = re.compile(
    r"(?<![a-z])(?:counts?|counter|num|n|usage|hits|visits|seen|steps?|ptr|pointer|age|hist(?:ogram)?|total|size"
    r"|samples|batches|updates|tracked)(?![a-z])"
)


def constants(checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor]) -> dict[str, str]:
    """Name → what it is, for each tensor whose values are those of a constant."""
    found: dict[str, str] = {}
    first, last = checkpoints[0], checkpoints[-1]
    for tensor in tensors:
        reason = _constant(first, last, tensor)
        if reason is not None:
            found[tensor.name] = reason
    found.update(_cosines_and_sines(first, last, tensors))
    return found


def _constant(first: Checkpoint, last: Checkpoint, tensor: Tensor) -> str | None:
    if tensor.numel == 0 or not _worth_reading(first, tensor):
        return None
    if not same_few(first, last, tensor) or tensor.numel == 1:
        return COUNTER if _counts(first, last, tensor) else None
    kinds = suspected(tensor.name)
    if not _may_be_constant(first, tensor, kinds) and not (first is not last and _waves_down(first, tensor)):
        return None
    sample = read_sample(first, last, tensor)
    return judge(sample, kinds) if sample is not None else None


def _counts(first: Checkpoint, last: Checkpoint, tensor: Tensor) -> bool:
    """Whether the values are integers that grow, which no trained number stays; or a single large one.

    Of several values the name must speak of counting, too: weights of a toy model may be integers.
    """
    counting = _COUNTS.search(tensor.name.lower()) and not locate(tensor.name).known
    if _WEIGHT.search(tensor.name) or (tensor.numel > 1 and not counting):
        return False
    few = read_values(last, last.tensors[tensor.name], 0, min(tensor.numel, FEW))
    if not np.isfinite(few).all() or few.min() < 0 or few.max() < 2 or (few != np.rint(few)).any():
        return False
    if first is last or same_few(first, last, tensor):
        return tensor.numel == 1 and float(few[0]) >= _LARGE_COUNT
    before, after = (
        read_values(c, c.tensors[tensor.name], 0, min(tensor.numel, MOST)) for c in (first, last)
    )
    whole = all(bool((values == np.rint(values)).all()) and values.min() >= 0 for values in (before, after))
    return whole and float(after.sum()) > float(before.sum())


def beside_schedules(
    checkpoints: Sequence[Checkpoint], tensors: Sequence[Tensor], reasons: Mapping[str, str]
) -> dict[str, str]:
    """Smooth vectors in the module of a noise schedule, and as long: whatever is computed from it."""
    first, last = checkpoints[0], checkpoints[-1]
    schedules = [name for name, reason in reasons.items() if reason == SCHEDULE]
    known = {(name.rpartition(".")[0], first.tensors[name].shape) for name in schedules}
    found = {}
    for tensor in tensors:
        if (tensor.name.rpartition(".")[0], tensor.shape) in known and same_few(first, last, tensor):
            sample = read_sample(first, last, tensor)
            if sample is not None and is_smooth(sample):
                found[tensor.name] = SCHEDULE
    return found


def judge(sample: Sample, kinds: frozenset[str]) -> str | None:
    """What the values are, if they are those of a constant; `kinds` is what the name says."""
    return next(filter(None, (rule(sample, kinds) for rule in RULES)), None)


def read_sample(first: Checkpoint, last: Checkpoint, tensor: Tensor) -> Sample | None:
    """The values of a tensor; None if they differ between the two checkpoints."""
    if not same_bytes(first, last, tensor):
        return None
    values = read_values(first, tensor, 0, min(tensor.numel, MOST))
    return make_sample(values, tensor, settled=first is not last and first.digest != last.digest)


def make_sample(values: Values, tensor: Tensor, *, settled: bool) -> Sample:
    """Values that were read from the front of a tensor, in its shape."""
    return Sample(shaped(values, tensor.shape), rounding_of(values, tensor.dtype), settled)


def _worth_reading(checkpoint: Checkpoint, tensor: Tensor) -> bool:
    """Whether the name is not that of a weight in the layers of a known family, or not quite, and cheap."""
    place = locate(tensor.name)
    if not place.known or place.role == "embedding":
        return True
    return checkpoint.zero_copy(tensor.name) and not _WEIGHT.search(tensor.name)


def _may_be_constant(checkpoint: Checkpoint, tensor: Tensor, kinds: frozenset[str]) -> bool:
    """Whether a few values allow any of the rules; most parameters end here."""
    head = _first_rows(checkpoint, tensor)
    if kinds or head.size == tensor.numel:
        return True
    low, high = float(head.min()), float(head.max())
    if low == high:  # as zeros and ones are, with which parameters begin
        few = np.concatenate([head, *_middle_and_end(checkpoint, tensor)])
        return low <= VERY_NEGATIVE or bool((few != low).any())
    if not np.isfinite(low + high):
        return True
    return bool((head == np.rint(head)).all()) or _wave_like(head, tensor)


def _first_rows(checkpoint: Checkpoint, tensor: Tensor) -> Values:
    """The first rows of a tensor, cut where they are long; from elsewhere, what one request fetches."""
    axes = [n for n in tensor.shape if n != 1]
    row = int(np.prod(axes[1:])) if len(axes) > 1 else 1
    wanted = max(256, _ROWS_PEEKED * min(row, _ROW_PEEKED))
    if not checkpoint.zero_copy(tensor.name):
        wanted = _WINDOW // WIDTHS[tensor.dtype]
    return read_values(checkpoint, tensor, 0, min(tensor.numel, wanted))


def _middle_and_end(checkpoint: Checkpoint, tensor: Tensor) -> Iterator[Values]:
    if checkpoint.zero_copy(tensor.name):
        for start in (tensor.numel // 2, max(0, tensor.numel - FEW)):
            yield read_values(checkpoint, tensor, start, min(tensor.numel, start + FEW))


def _wave_like(head: Values, tensor: Tensor) -> bool:
    """Whether the first values could begin a table of sines, of angles, or of ALiBi.

    Most such tables begin with exact values, because the first angle is 0. Others (a padding row is
    dropped, positions count from 1, columns are positions) are on the circle, or recur.
    """
    size = np.abs(head)
    exact = np.count_nonzero(size == size.max()) + head.size - np.count_nonzero(head)
    if exact >= 0.02 * head.size or _even_steps(head[:16]):
        return True
    row = head[: next((n for n in reversed(tensor.shape) if n != 1), 1)]
    return _on_circle(row) or _recurring(row[:64])


def _waves_down(checkpoint: Checkpoint, tensor: Tensor) -> bool:
    """Whether the first columns are sines or powers, in a table whose first row is nothing special."""
    axes = [n for n in tensor.shape if n != 1]
    row = int(np.prod(axes[1:]))
    if (
        len(axes) < 2
        or axes[0] < _ROWS_OF_COLUMN
        or row > _ROW_PEEKED
        or not checkpoint.zero_copy(tensor.name)
    ):
        return False
    rows = read_values(checkpoint, tensor, 0, _ROWS_OF_COLUMN * row).reshape(_ROWS_OF_COLUMN, row)
    return all(_recurring(column) for column in rows[:, :3].T)


def _on_circle(row: Values) -> bool:
    """Whether pairs of a row's values are on a circle, in one of the usual orders."""
    if row.size < 4:
        return False
    squares = row**2
    even = row.size // 2 * 2
    sums = (squares[: even // 2] + squares[even // 2 : even], squares[0:even:2] + squares[1:even:2])
    quarter = squares[: even // 4] + squares[even // 4 : even // 4 * 2] if even >= 8 else sums[0]
    return any(float(part.min()) >= 0.95 * float(part.max()) for part in (*sums, quarter))


def _recurring(row: Values) -> bool:
    """Whether the row is one sine: each value a multiple of the sum of its neighbours."""
    middle, sums = row[1:-1], row[2:] + row[:-2]
    if row.size < 6 or not middle.any():
        return False
    left = sums - np.sum(sums * middle) / np.sum(middle**2) * middle
    return bool(np.abs(left).max() <= 0.05 * np.abs(row).max())


def _even_steps(row: Values) -> bool:
    """Whether the values rise or fall evenly."""
    steps = np.diff(row)
    return bool(steps.size and steps[0] != 0 and (np.abs(steps / steps[0] - 1) <= 0.05).all())


def _cosines_and_sines(first: Checkpoint, last: Checkpoint, tensors: Sequence[Tensor]) -> dict[str, str]:
    """Two tensors whose names differ in `cos` and `sin`, and whose squares add up to a constant."""
    named = {tensor.name: tensor for tensor in tensors}
    found: dict[str, str] = {}
    for cosines, sines in _twins(named):
        if named[cosines].shape == named[sines].shape and same_few(first, last, named[cosines]):
            samples = [read_sample(first, last, named[name]) for name in (cosines, sines)]
            if samples[0] is not None and samples[1] is not None and unit_circle(samples[0], samples[1]):
                found[cosines] = found[sines] = ROTARY
    return found


def _twins(named: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    for name in named:
        head, _, last = name.rpartition(".")
        for cosine, sine in (("cos", "sin"), ("Cos", "Sin"), ("COS", "SIN"), ("real", "imag")):
            twin = last.replace(cosine, sine)
            other = f"{head}.{twin}" if head else twin
            if twin != last and other in named:
                yield name, other
