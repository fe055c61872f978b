"""How often a law is claimed for series that follow none.

    python -m benchmarks.no_law [--series N] [--seed S] [--kinds tuned|first|all] [--markdown]

Every kind in five lengths, four noise levels, linearly and logarithmically spaced in turn. The thresholds of
the choice were set on the kinds in TUNED with seeds below 100; FIRST are kinds they have never seen. A claim
is one law, said to be the law of the series: `decided`. Every claim here is wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product

import numpy as np

from benchmarks.law_choice import SPAN, errors_of, steps_of
from normscope.errors import SeriesError
from normscope.theory.laws.growth import fit_series
from normscope.theory.measures.time_series import Series

LENGTHS = (25, 50, 100, 200, 400)
NOISE = (0.0, 0.003, 0.01, 0.03)  # of the range of the curve


def under_schedule(steps, rate, rng):
    """ρ² that grows by η² at every step: the norm under a learning-rate schedule, without decay."""
    fine = np.linspace(0, SPAN, 4001)
    grown = np.concatenate([[0.0], np.cumsum(rate(fine[:-1] / SPAN) ** 2)])
    start, end = rng.uniform(20, 100) ** 2, rng.uniform(100, 300) ** 2
    return np.sqrt(start + end * np.interp(steps, fine, grown / grown[-1]))


def sine_hump(steps, rng):
    return 100 + rng.uniform(20, 60) * np.sin(np.pi * rng.uniform(0.8, 1.6) * steps / SPAN)


def reset(steps, rng):
    grown, change = 50 + 100 * np.sqrt(steps / SPAN), SPAN * rng.uniform(0.3, 0.7)
    return grown - np.where(steps > change, rng.uniform(0.3, 0.7) * np.interp(change, steps, grown), 0)


def cosine(steps, rng):
    floor = rng.uniform(0, 0.1)
    return under_schedule(steps, lambda x: floor + (1 - floor) * (1 + np.cos(np.pi * x)) / 2, rng)


def wsd(steps, rng):
    warm, cool = rng.uniform(0.01, 0.1), rng.uniform(0.6, 0.85)
    return under_schedule(steps, lambda x: np.minimum(x / warm, 1) * np.clip((1 - x) / (1 - cool), 0, 1), rng)


def random_walk(steps, rng):
    return 100 + 10 * np.cumsum(rng.standard_normal(len(steps))) / np.sqrt(len(steps))


def damped(steps, rng):
    x, turns = steps / SPAN, rng.uniform(1.5, 5)
    return 100 + 30 * np.exp(-rng.uniform(1, 3) * x) * np.cos(2 * np.pi * turns * x)


def staircase(steps, rng):
    edges = np.sort(rng.uniform(0.1, 0.95, rng.integers(2, 6))) * SPAN
    return 50 + 20 * sum((steps > edge).astype(float) for edge in edges)


def logistic(steps, rng):
    middle, width = rng.uniform(0.3, 0.7), rng.uniform(0.05, 0.12)
    return 50 + 100 / (1 + np.exp(-(steps / SPAN - middle) / width))


def stationary(steps, rng):
    return 100 + 5 * errors_of(len(steps), rng.uniform(0, 0.95), rng)


def correlated_hump(steps, rng):
    curve = sine_hump(steps, rng)
    return curve + 0.1 * np.ptp(curve) * errors_of(len(steps), rng.uniform(0.3, 0.95), rng)


def two_regimes(steps, rng):
    x, change = steps / SPAN, rng.uniform(0.35, 0.65)
    late = 0.05 * np.logaddexp(0, (x - change) / 0.05)
    return 50 + 40 * x + rng.uniform(100, 300) * late


def collapse(steps, rng):
    x, when = steps / SPAN, rng.uniform(0.3, 0.6)
    fall = 1 / (1 + np.exp(-(x - when) / 0.02))
    return (
        60
        + 80 * np.sqrt(x)
        - rng.uniform(40, 70) * fall * np.exp(-rng.uniform(2, 5) * np.maximum(x - when, 0))
    )


def plateau(steps, rng):
    low, high = np.sort(rng.uniform(0.2, 0.8, 2)) * SPAN
    return 50 + 100 * np.clip((steps - low) / max(high - low, 0.05 * SPAN), 0, 1)


def spikes(steps, rng):
    curve = sine_hump(steps, rng)
    at = rng.choice(len(steps), max(1, len(steps) // 20), replace=False)
    curve[at] += rng.uniform(50, 150, len(at))
    return curve


def chirp(steps, rng):
    x = steps / SPAN
    return 80 + 60 * x + rng.uniform(8, 25) * np.sin(2 * np.pi * (1 + rng.uniform(1, 4) * x) * x)


def step_decay(steps, rng):
    change = np.sort(rng.uniform(0.3, 0.8, 2))
    return under_schedule(steps, lambda x: np.select([x < change[0], x < change[1]], [1.0, 0.3], 0.1), rng)


def warm_restarts(steps, rng):
    cycles = rng.integers(2, 5)
    return under_schedule(steps, lambda x: (1 + np.cos(np.pi * (cycles * x % 1))) / 2, rng)


def rise_and_decay(steps, rng):
    x, peak = steps / SPAN, rng.uniform(0.15, 0.4)
    return 50 + 100 * (x / peak) * np.exp(1 - x / peak)


def walking_drift(steps, rng):
    """A random walk whose own drift wanders."""
    drift = np.cumsum(rng.standard_normal(len(steps))) / len(steps) ** 1.5
    return 100 + 40 * np.cumsum(drift)


TUNED = (sine_hump, reset, cosine, wsd, random_walk, damped, staircase, logistic, stationary, correlated_hump)
FIRST = (
    two_regimes,
    collapse,
    plateau,
    spikes,
    chirp,
    step_decay,
    warm_restarts,
    rise_and_decay,
    walking_drift,
)
KINDS = {kind.__name__.replace("_", " "): kind for kind in (*TUNED, *FIRST)}


def make(kind, points, noise, number, rng):
    """One series: integer steps, linearly or logarithmically spaced in turn."""
    steps = np.unique(np.rint(steps_of(points, number % 2 == 1)))
    curve = KINDS[kind](steps, rng)
    return steps, curve + noise * np.ptp(curve) * rng.standard_normal(len(steps))


def study(kinds, series, seed):
    """(kind, noise, points, fit) for `series` series of every case; fit None where nothing can be fitted."""
    for index, kind in enumerate(kinds):
        rng = np.random.default_rng([seed, index])
        for points, noise, number in product(LENGTHS, NOISE, range(series)):
            steps, values = make(kind, points, noise, number, rng)
            try:
                fit = fit_series(Series(kind, steps, values))
            except SeriesError:
                fit = None
            yield kind, noise, points, fit


def report(results, markdown):
    line = "| {:18} | {:>6} | {:>8} | {:>8} | {:>8} | {:20} |"
    print(line.format("kind", "series", "one law", "several", "none", "claimed"))
    print("|---|---|---|---|---|---|" if markdown else "")
    for name in [*dict.fromkeys(kind for kind, *_ in results), "all"]:
        kept = [fit for kind, _, _, fit in results if name in (kind, "all")]
        count = Counter(fit.verdict if fit else "none" for fit in kept)
        claimed = Counter(fit.best for fit in kept if fit and fit.decided)
        shares = [f"{count[v] / len(kept):.1%}" for v in ("one law", "several laws", "none")]
        print(line.format(name, len(kept), *shares, ", ".join(f"{k} {n}" for k, n in claimed.most_common(3))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=10)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--kinds", choices=("tuned", "first", "all"), default="all")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_known_args()[0]
    split = {"tuned": TUNED, "first": FIRST, "all": (*TUNED, *FIRST)}[options.kinds]
    kinds = [kind.__name__.replace("_", " ") for kind in split]
    report(list(study(kinds, options.series, options.seed)), options.markdown)


if __name__ == "__main__":
    main()
