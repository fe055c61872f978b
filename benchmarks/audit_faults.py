"""Faulty series, built from a family of runs, each with the size of its fault.

The size is the move at the fault divided by the largest move nearby (two links on either side, as over as
many steps), or by the move that the sound run makes there, whichever is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.run_families import Change, Family, Pick
from normscope.weights.soundness.pairs import PairTable


@dataclass(frozen=True)
class Fault:
    """A faulty series; `size` as the module says."""

    name: str
    table: PairTable
    sumsq: np.ndarray
    size: float


def size_of(faulty: PairTable, sound: PairTable, places: list[list[int]]) -> float:
    """The largest size over the places of the fault, each a list of neighbouring links."""
    found = []
    for links in places:
        usual = max(faulty.usual_move(set(links)), min(float(sound.moved[j]) for j in links))
        found.append(max(float(faulty.moved[j]) / max(usual, float(sound.moved[j]), 1e-300) for j in links))
    return float(np.sqrt(max(found)))


def all_faults(family: Family, rng: np.random.Generator) -> Iterator[Fault]:
    """Every fault that can be built from a family, at random places."""
    yield from _foreign(family, rng)
    yield from _of_the_same_run(family, rng)
    yield from _damaged(family, rng)


def _build(
    family: Family,
    name: str,
    picks: list[Pick],
    places: list[list[int]],
    in_tensors: dict[int, dict[int, Pick]] | None = None,
    change: Change | None = None,
) -> Fault:
    sound, _ = family.series(family.picks()[: len(picks)])
    table, sumsq = family.series(picks, in_tensors, change)
    return Fault(name, table, sumsq, size_of(table, sound, places))


def _foreign(family: Family, rng: np.random.Generator) -> Iterator[Fault]:
    n = len(family.steps)
    for run, start in (("b", "same start"), ("c", "other start")):
        for k in rng.choice(np.arange(3, n - 1), 4).tolist():
            picks = [(run if i >= k else "a", i) for i in range(n)]
            yield _build(family, f"second part, {start}", picks, [[k]])
        for k in rng.choice(np.arange(3, n - 4), 2).tolist():
            picks = [(run if k <= i < k + 3 else "a", i) for i in range(n)]
            yield _build(family, f"block of three, {start}", picks, [[k], [k + 3]])
        for turn in (0, 1):
            picks = [(run if i % 2 == turn else "a", i) for i in range(n)]
            yield _alternating(family, f"alternating, {start}", picks)
        for k in rng.choice(np.arange(2, n - 2), 3).tolist():
            picks = [(run if i == k else "a", i) for i in range(n)]
            yield _build(family, f"one in the middle, {start}", picks, [[k, k + 1]])
        for length in (n, n * 2 // 3, max(6, n // 2)):
            picks = [(run if i == length - 1 else "a", i) for i in range(length)]
            yield _build(family, f"last one, {start}", picks, [[length - 1]])
        if run == "c" or family.steps[0] > 0:
            yield _build(family, f"first one, {start}", [(run, 0), *family.picks()[1:]], [[1]])
    yield from _strangers(family)


def _alternating(family: Family, name: str, picks: list[Pick]) -> Fault:
    """Every link is a fault: the median one gives the size."""
    sound, _ = family.series(family.picks())
    table, sumsq = family.series(picks)
    return Fault(
        name, table, sumsq, float(np.sqrt(np.median(table.moved[1:] / np.maximum(sound.moved[1:], 1e-300))))
    )


def _strangers(family: Family) -> Iterator[Fault]:
    """Unrelated seeds, as far as a family has them: permuted rows have the products of independent ones."""
    n = len(family.steps)
    for length in (5, 8):
        picks = [("c" if i % 2 else "a", n - 1 - i) for i in range(length)]

        def unrelated(products: np.ndarray) -> np.ndarray:
            return np.diag(np.diag(products))

        table, sumsq = family.series(picks, None, unrelated)
        yield Fault("unrelated seeds", table, sumsq, float("inf"))


def _of_the_same_run(family: Family, rng: np.random.Generator) -> Iterator[Fault]:
    n = len(family.steps)
    first = min(i for run, i in family.place if run == "d")
    for k in rng.choice(np.arange(first + 2, n), 4).tolist():
        picks = [("d" if i >= k else "a", i) for i in range(n)]
        yield _build(family, "resumed from an older one", picks, [[k]])
    for k in rng.choice(np.arange(5, n - 3), 2).tolist():
        swapped = family.picks()
        swapped[k], swapped[k + 1] = swapped[k + 1], swapped[k]
        yield _build(family, "neighbours exchanged", swapped, [[k], [k + 2]])
        far = int(min(n - 2, k + 3))
        swapped = family.picks()
        swapped[k], swapped[far] = swapped[far], swapped[k]
        yield _build(family, "distant ones exchanged", swapped, [[k, k + 1], [far, far + 1]])
        lag = int(rng.integers(2, 5))
        yield _build(family, "older one in its place", _with(family, k, ("a", k - lag)), [[k, k + 1]])
    for run in (run for run in family.runs if "ema" in run):
        for k in rng.choice(np.arange(3, n - 2), 2).tolist():
            yield _build(family, "moving average for one", _with(family, k, (run, k)), [[k, k + 1]])


def _with(family: Family, k: int, pick: Pick) -> list[Pick]:
    return [pick if i == k else own for i, own in enumerate(family.picks())]


def _damaged(family: Family, rng: np.random.Generator) -> Iterator[Fault]:
    n = len(family.steps)
    for size in (0.1, 0.2, 0.4):
        k = int(rng.integers(2, n - 2))
        yield _build(family, "noise on one", family.picks(), [[k, k + 1]], change=_noise(k, size))
    k = int(rng.integers(2, n - 2))
    yield _build(family, "one scaled by 1.1", family.picks(), [[k, k + 1]], change=_scale(k, 1.1))
    for lag in (1, 2, 3, 4):
        k = int(rng.integers(5, n - 2))
        shard = np.flatnonzero(rng.random(len(family.numel)) < 0.5)
        stale = {int(tensor): {k: ("a", k - lag)} for tensor in shard}
        yield _build(family, "stale shard, by distance", family.picks(), [[k, k + 1]], in_tensors=stale)


def _noise(k: int, size: float) -> Change:
    def change(products: np.ndarray) -> np.ndarray:
        products[k, k] *= 1 + size**2
        return products

    return change


def _scale(k: int, factor: float) -> Change:
    def change(products: np.ndarray) -> np.ndarray:
        products[k] *= factor
        products[:, k] *= factor
        return products

    return change
