"""Parts of a scan walked in other processes or on other machines.

What crosses over is names: a part, and where its checkpoints lie. The other side
opens each checkpoint once and sends back sums, a few numbers a row. It must see
the same files under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import open_series
from normscope.weights.scan.walk import Part, walk
from normscope.weights.sums.statistics import Sums

OPEN = 1024  # checkpoints a worker keeps open


def walk_elsewhere(part: Part, sources: Mapping[int, str]) -> list[Sums]:
    """`walk`, given the places of the chain's checkpoints instead of the checkpoints."""
    return walk(part, {i: _opened(sources[i]) for i in part.chain.reads})


@lru_cache(maxsize=OPEN)
def _opened(source: str) -> Checkpoint:
    return open_series(source, steps=[0]).entries[0].open()
