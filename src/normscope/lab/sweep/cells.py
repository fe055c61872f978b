"""The cells of a sweep: which fields take which values, and what one cell is called and seeded with."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig, flat, override

SEED_RULES = ("same", "own")


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what it changes, by field name, and the config that results."""

    id: str
    changes: Mapping[str, Any]
    config: TrainConfig


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of every field, the last field varying fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def values_of(text: str) -> list[Any]:
    """The values someone typed: `1e-5:1e-1:5` is five, evenly spaced in the logarithm; `pre,post` two."""
    match text.split(":"):
        case [_]:
            return [part.strip() for part in text.split(",")]
        case [low, high, count]:
            return _log_space(text, low, high, count)
    raise UsageError(f"expected values such as 1e-5:1e-1:5 or 0.1,0.2, but got {text!r}")


def _log_space(text: str, low: str, high: str, count: str) -> list[float]:
    try:
        start, stop, number = math.log(float(low)), math.log(float(high)), int(count)
        if number < 1:
            raise ValueError
    except ValueError:
        raise UsageError(f"a range is LOW:HIGH:COUNT with two numbers above 0, not {text!r}") from None
    places = [start + (stop - start) * i / max(number - 1, 1) for i in range(number)]
    return [float(f"{math.exp(place):.6g}") for place in places]


def make_cells(base: TrainConfig, changes: Sequence[Mapping[str, Any]], seeds: str = "same") -> list[Cell]:
    """The cells of these changes; a cell named twice comes once.

    The seed of a cell is the base's (`same`), so that cells differ in nothing else, or follows
    from the base's and the changes (`own`); a cell that sets `seed` itself keeps that.
    """
    cells = {cell.id: cell for cell in (_cell(base, change, seeds) for change in changes)}
    if not cells:
        raise UsageError("a sweep needs at least one cell: give values for at least one field")
    return list(cells.values())


def _cell(base: TrainConfig, changes: Mapping[str, Any], seeds: str) -> Cell:
    config = override(base, changes)
    values = flat(config)
    kept = {name: values[name] for name in changes}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    if seeds == "own" and "seed" not in kept:
        config = replace(config, seed=(base.seed + int(digest[-7:], 16)) % 2**31)
    readable = re.sub(r"[^\w.=+-]+", "_", ",".join(f"{name}={value}" for name, value in kept.items()))
    return Cell(f"{readable[:60]}-{digest[:8]}", kept, config)
