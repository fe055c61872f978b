"""What the names in a Flax state say that is not trained: batch statistics, random state, caches.

Flax NNX saves a tree of variables, each with one leaf, `value` (or `raw_value`). Checkpoints store no kinds
of variables (Param, BatchStat, RngKey), so names decide: those that NNX's own layers give.
https://flax.readthedocs.io/en/latest/api_reference/flax.nnx/variables.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from normscope.checkpoints.base import Tensor

EntryPath = tuple[str, ...]

STATISTICS, RANDOM, CACHE = "batch statistics", "random state", "an attention's cache"
COLLECTIONS: Mapping[str, str] = {
    "batch_stats": STATISTICS, "batch_statistics": STATISTICS,
    "rngs": RANDOM, "rng_state": RANDOM, "rng": RANDOM, "cache": CACHE, "params_axes": "names of axes",
    "intermediates": "intermediate values", "losses": "losses", "perturbations": "perturbations",
}  # fmt: skip
"""Collections of Flax beside `params`, and what they are."""
NOTE = "the kinds of variables are not stored; batch statistics and random state are told by their names"

_LEAVES = ("value", "raw_value")
_MEAN, _SPREAD = "mean", "var"
_STREAM = frozenset(("key", "count"))
_CACHED = frozenset(("cached_key", "cached_value", "cache_index"))


def without_value_leaves(paths: Iterable[EntryPath]) -> dict[EntryPath, EntryPath]:
    """Each path → what it is called without NNX's last part, where nothing else has the same parent."""
    listed = list(paths)
    siblings = Counter(path[:-1] for path in listed)
    shorter = {p: p[:-1] if p[-1] in _LEAVES and len(p) > 1 and siblings[p[:-1]] == 1 else p for p in listed}
    counts = Counter(shorter.values())
    return {path: short if counts[short] == 1 else path for path, short in shorter.items()}


def untrained(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The tensors that are no parameters by the names that NNX gives, and what they are."""
    found = {}
    for name, tensor in tensors.items():
        *_, last = parts = name.split(".")
        partner = {_MEAN: _SPREAD, _SPREAD: _MEAN}.get(last)
        beside = tensors.get(".".join((*parts[:-1], partner))) if partner else None
        if beside is not None and beside.shape == tensor.shape and tensor.dtype == beside.dtype:
            found[name] = STATISTICS
        elif last in _STREAM and "int" in tensor.dtype and _in_rngs(parts[:-1]):
            found[name] = RANDOM
        elif last in _CACHED:
            found[name] = CACHE
    return found


def _in_rngs(parts: list[str]) -> bool:
    return any(part in ("rngs", "rng") for part in parts)
