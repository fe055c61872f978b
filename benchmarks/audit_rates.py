"""How often an audit raises a false alarm, and how often it finds a fault, over simulated runs.

    python -m benchmarks audit_rates

Faults are counted by size: the squared move across the fault divided by the squared move of
the sound run there. For exchanged neighbours, the size is the squared distance of two steps of
the sound run divided by that of one (1: they cannot be distinguished); for a scaled checkpoint,
the scale divided by the largest change of the log-norm nearby.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from benchmarks.simulated_runs import SPOILERS, draw_recipe, path_of, simulate
from normscope.remarks import SURE
from normscope.weights.soundness.breaks import find_breaks
from normscope.weights.soundness.spacing import learn_spacing

CLEAN, SPOILT = 500, 60  # series to simulate: clean ones, and of each fault
EDGES = (1.5, 4, 20)
BINS = ("< 1.5", "1.5–4", "4–20", "> 20")


def alarms(steps: np.ndarray, runs: np.ndarray, weights: bool) -> set[str]:
    return {f.kind for f in find_breaks(path_of(steps, runs, weights)) if f.confidence >= SURE}


def size_of(fault: str, clean: np.ndarray, spoilt: np.ndarray, k: int) -> float:
    if fault == "two neighbours exchanged":
        moved = [np.sum((clean[i] - clean[i - 1]) ** 2) for i in range(k, k + 3)]
        before, after = np.sum((clean[k + 1] - clean[k - 1]) ** 2), np.sum((clean[k + 2] - clean[k]) ** 2)
        return float(min(before / moved[0], after / moved[2]))
    if fault == "one scaled by 1.1":
        logs = np.log(np.linalg.norm(clean, axis=1))
        return float(np.log(1.1) / np.max(np.abs(np.diff(logs[max(0, k - 3) : k + 4]))))
    before, after = (np.sum(np.diff(runs, axis=0) ** 2, axis=1) for runs in (clean, spoilt))
    return float(np.max(after / before))


def clean_rates(count: int, rng: np.random.Generator) -> None:
    false: Counter[str] = Counter()
    for _ in range(count):
        recipe = draw_recipe(rng)
        runs = simulate(recipe)
        false["weights at hand"] += bool(alarms(recipe.steps, runs, True))
        false["run file only"] += bool(alarms(recipe.steps, runs, False))
        false["spacing"] += any(f.confidence >= SURE for f in learn_spacing(recipe.steps.tolist()).findings)
    print(f"false alarms of {count} clean series")
    for name, number in sorted(false.items()):
        print(f"  {name:16} {number:3}   {number / count:.2%}")


def spoilt_rates(fault: str, count: int, rng: np.random.Generator) -> None:
    total, seen, blind = Counter(), Counter(), Counter()
    for _ in range(count):
        recipe = draw_recipe(rng)
        clean = simulate(recipe)
        k = int(rng.integers(3, len(clean) - 3))
        spoilt = SPOILERS[fault](recipe, rng, clean.copy(), k)
        where = int(np.digitize(size_of(fault, clean, spoilt, k), EDGES))
        total[where] += 1
        seen[where] += bool(alarms(recipe.steps, spoilt, True))
        blind[where] += bool(alarms(recipe.steps, spoilt, False))
    cells = (f"{seen[i]:3}/{blind[i]:3} of {total[i]:3}" for i in range(len(BINS)))
    print(f"  {fault:28}" + "   ".join(cells), flush=True)


def gap_rates(count: int, rng: np.random.Generator) -> None:
    seen = 0
    for _ in range(count):
        steps = draw_recipe(rng).steps.tolist()
        gone = int(rng.integers(2, len(steps) - 2))
        found = learn_spacing(steps[:gone] + steps[gone + 1 :]).findings
        seen += any(
            f.kind == "gap" and abs(f.steps[0] - steps[gone]) <= 0.02 * steps[gone] + 1 for f in found
        )
    print(f"  one checkpoint missing: {seen} of {count} named ({seen / count:.1%})")


def main() -> None:
    clean_rates(CLEAN, np.random.default_rng(424242))
    print("\nfaults found, weights at hand / run file only, by size of the fault")
    print(" " * 30 + "".join(f"{name:<17}" for name in BINS))
    for number, fault in enumerate(SPOILERS):
        spoilt_rates(fault, SPOILT, np.random.default_rng(7000 + number))
    gap_rates(10 * SPOILT, np.random.default_rng(100))


if __name__ == "__main__":
    main()
