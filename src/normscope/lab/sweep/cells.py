"""The cells of a sweep: which fields take which values, and the name and the seed of each cell."""

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
from normscope.lab.config import TrainConfig, flatten, override
from normscope.lab.field_paths import plain_names
from normscope.lab.program_fields import check_programs, refuse_unnamed
from normscope.lab.unused_fields import changed_fields, refuse_unused
from normscope.network.places.programs import is_program

SEED_RULES = ("same", "own")
_WORD = re.compile(r"[a-z-]+:[^:]+$")  # such as spectral-cap:2 or every:10


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: its name, the fields it changes, and the resulting config."""

    id: str
    changes: Mapping[str, Any]
    config: TrainConfig


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of every field; the last field varies fastest.

    >>> grid({"lr": [0.1, 0.2], "norm": ["pre"]})
    [{'lr': 0.1, 'norm': 'pre'}, {'lr': 0.2, 'norm': 'pre'}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def parse_values(text: str) -> list[Any]:
    """Parse values as typed: `1e-5:1e-1:5` is five, evenly spaced in the logarithm; `pre,post` is two.

    >>> parse_values("1e-3:1e-1:3")
    [0.001, 0.01, 0.1]
    """
    match text.split(":"):
        case [low, high, count] if "," not in text:
            return _log_space(text, low, high, count)
        case [_]:
            return [part.strip() for part in text.split(",")]
    parts = [part.strip() for part in text.split(",")]
    if all(is_program(part) or _WORD.match(part) for part in parts if ":" in part):
        return parts
    raise UsageError(f"expected values such as 1e-5:1e-1:5 or 0.1,0.2, but got {text!r}")


def _log_space(text: str, low: str, high: str, count: str) -> list[float]:
    try:
        start, stop, number = math.log(float(low)), math.log(float(high)), int(count)
        if number < 1:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"a range is LOW:HIGH:COUNT with positive numbers, such as 1e-5:1e-1:5, not {text!r}"
        ) from None
    places = [start + (stop - start) * i / max(number - 1, 1) for i in range(number)]
    return [float(f"{math.exp(place):.6g}") for place in places]


def make_cells(base: TrainConfig, changes: Sequence[Mapping[str, Any]], seeds: str = "same") -> list[Cell]:
    """Return one cell per set of changes; equal ones are returned once.

    With seeds `same`, every cell has the seed of the base, so that cells differ in nothing else;
    with `own`, the seed of a cell is derived from the base's seed and the changes. A cell that
    changes `seed` keeps its own.
    """
    cells = {cell.id: cell for cell in (_cell(base, change, seeds) for change in changes)}
    for cell in cells.values():
        refuse_unnamed(cell.config)
        check_programs(cell.config)
    if not cells:
        raise UsageError("a sweep needs at least one cell: give values for at least one field")
    changed = {name for cell in cells.values() for name in cell.changes} | changed_fields(base)
    refuse_unused(changed, [cell.config for cell in cells.values()])
    return list(cells.values())


def _cell(base: TrainConfig, changes: Mapping[str, Any], seeds: str) -> Cell:
    config = override(base, changes)
    values = flatten(config)
    kept = {name: values[name] for name in plain_names(TrainConfig, changes)}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    if seeds == "own" and "seed" not in kept:
        config = replace(config, seed=(base.seed + int(digest[-7:], 16)) % 2**31)
    readable = re.sub(r"[^\w.=+-]+", "_", ",".join(f"{name}={value}" for name, value in kept.items()))
    return Cell(f"{readable[:60]}-{digest[:8]}", kept, config)
