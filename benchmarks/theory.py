"""How long fits take: one series, 300 groups, a million points; and the import without torch."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from normscope.theory.laws.growth import fit_series
from normscope.theory.measures.time_series import Series

LIMITS = {"1,000 points": 0.5, "300 groups of 1,000 points": 6.0, "1,000,000 points": 3.0}


def series_of(points, seed):
    rng = np.random.default_rng(seed)
    steps = np.arange(points) * 100
    curve = 50 + 100 * (steps / steps[-1]) ** rng.uniform(0.4, 0.7)
    return Series(f"group {seed}", steps, curve + rng.normal(0, 0.3, points))


def timed(work):
    """(seconds on the clock, seconds of processor time): on a busy machine only the second is meaningful."""
    start = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start[0], time.process_time() - start[1]


def start_up():
    """Seconds until the laws can be used, and whether torch was loaded for it."""
    code = "import sys, normscope.theory.laws.growth; print('torch' in sys.modules)"
    begin = time.perf_counter()
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - begin, loaded.strip() == "True"


def main():
    fit_series(series_of(100, 0))  # the first call loads scipy
    groups = [series_of(1000, seed) for seed in range(300)]
    work = {
        "1,000 points": lambda: fit_series(groups[0]),
        "300 groups of 1,000 points": lambda: [fit_series(group) for group in groups],
        "1,000,000 points": lambda: fit_series(series_of(10**6, 1)),
    }
    print("| all laws, choice and intervals for | seconds | processor | at most |\n|---|---|---|---|")
    for name, job in work.items():
        clock, processor = timed(job)
        print(f"| {name} | {clock:.2f} | {processor:.2f} | {LIMITS[name]:g} |", flush=True)
    seconds, torch = start_up()
    print(f"| start-up ({'with' if torch else 'without'} torch) | {seconds:.2f} | – | – |")


if __name__ == "__main__":
    main()
