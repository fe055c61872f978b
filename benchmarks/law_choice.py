"""How often the choice of a law is right, and how often 95 % intervals contain the exponent.

    python -m benchmarks.law_choice [--series N] [--seed S] [--phis 0 0.6] [--markdown]

Series of every law, at three noise levels, three lengths and two autocorrelations, linearly and
logarithmically spaced in turn. An answer is right (one law, the true one), honest (nothing is claimed, and
the true one is among those named), lost (nothing is claimed, and it is not) or wrong (one law, not the true
one). Of the honest and the lost, `none` is the share of all answers that say "none of these laws".
`piecewise` is a description, never claimed: there the right answer names it as the closest, without a claim.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np

from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.intervals import shape_interval
from normscope.theory.laws.law_choice import judge as judge_series
from normscope.theory.laws.law_choice import plain_fits
from normscope.theory.laws.laws import LAWS

SPAN = 1e5
NOISE = (0.001, 0.01, 0.03)  # of the growth
LENGTHS = (25, 100, 400)
PHIS = (0.0, 0.6)
EXPONENTS = {"sqrt": 0.5, "linear": 1.0, "quartic-root": 0.25}


@dataclass(frozen=True)
class Case:
    law: str
    noise: float
    points: int
    phi: float


def steps_of(points, logarithmic):
    if logarithmic:
        return np.unique(np.geomspace(10, SPAN, points).round())
    return np.linspace(0, SPAN, points)


def either(rng, low, high):
    return rng.uniform(*(low if rng.random() < 0.5 else high))


def draw(law, rng):
    """Parameters of a series that starts between 20 and 100 and grows visibly."""
    start, grown = rng.uniform(20, 100), 100.0
    end = start * rng.uniform(1.5, 4)
    if law in EXPONENTS:
        return [grown / SPAN ** EXPONENTS[law], start]
    if law == "log":
        return [grown / np.log1p(SPAN), start]
    if law == "power":
        p = either(rng, (0.3, 0.42), (0.6, 0.85))
        return [grown / SPAN**p, start, p]
    if law == "sqrt-linear":
        return [(end**2 - start**2) / SPAN, start**2]
    if law == "aligned":
        return [start, rng.uniform(0.7, 2) / SPAN**0.5]
    if law == "piecewise":
        slope = grown / SPAN**0.5
        return [slope, slope * either(rng, (-0.9, -0.4), (0.5, 1.5)), start, SPAN * rng.uniform(0.3, 0.7)]
    rate = rng.uniform(2, 6) / SPAN
    growth = (end**2 - start**2) if law == "misaligned-decay" else (end - start)
    return [growth * rate, start**2 if law == "misaligned-decay" else start, rate]


def errors_of(points, phi, rng):
    fresh = rng.standard_normal(points)
    errors = fresh.copy()
    for i in range(1, points):
        errors[i] = phi * errors[i - 1] + np.sqrt(1 - phi**2) * fresh[i]
    return errors


def make(case, number, rng):
    steps = steps_of(case.points, number % 2 == 1)
    params = np.array(draw(case.law, rng))
    curve = LAWS[case.law].value(steps, params)
    return steps, curve + case.noise * np.ptp(curve) * errors_of(len(steps), case.phi, rng), params


def judge(case, steps, values):
    choice = judge_series(plain_fits(steps, values), steps, values).choice
    if choice.decided:
        return "right" if choice.best == case.law else "wrong", choice
    if LAWS[case.law].describes and choice.best == case.law:
        return "right", choice
    return "honest" if case.law in choice.candidates else "lost", choice


def covered(case, steps, values, params, seed):
    """Whether the interval contains the true exponent; None for a law that has none."""
    truth = EXPONENTS.get(case.law, params[-1] if case.law == "power" else None)
    if truth is None:
        return None
    metric = Metric.plain(len(steps))
    interval = shape_interval(fit_law(LAWS["power"], steps, values, metric), steps, values, seed)
    return interval.low <= truth <= interval.high


def study(series, seed, phis=PHIS):
    """(case, verdict, covered, chosen) for `series` series of every case."""
    rng = np.random.default_rng(seed)
    for case in map(Case, *zip(*product(LAWS, NOISE, LENGTHS, phis), strict=True)):
        for number in range(series):
            steps, values, params = make(case, number, rng)
            verdict, choice = judge(case, steps, values)
            yield case, verdict, covered(case, steps, values, params, number), choice


def report(results, markdown):
    line = "| {:18} | {:>6} | {:>6} | {:>6} | {:>6} | {:>6} | {:>6} | {:>8} |"
    print(line.format("", "series", "right", "honest", "lost", "wrong", "none", "coverage"))
    print("|---|---|---|---|---|---|---|---|" if markdown else "")
    groups = [("all", lambda c: "all"), ("law", lambda c: c.law), ("noise", lambda c: f"noise {c.noise:.1%}")]
    groups += [("points", lambda c: f"{c.points} points"), ("phi", lambda c: f"autocorrelation {c.phi}")]
    for _, key in groups:
        for name in dict.fromkeys(key(case) for case, *_ in results):
            kept = [result for result in results if key(result[0]) == name]
            count = Counter(verdict for _, verdict, *_ in kept)
            shares = [f"{count[v] / len(kept):.1%}" for v in ("right", "honest", "lost", "wrong")]
            none = np.mean([v != "right" and chosen.verdict == "none" for _, v, _, chosen in kept])
            hits = [hit for _, _, hit, _ in kept if hit is not None]
            coverage = f"{np.mean(hits):.1%}" if hits else "–"
            print(line.format(name, len(kept), *shares, f"{none:.1%}", coverage))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--phis", type=float, nargs="+", default=PHIS)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="list the cases that came out lost or wrong")
    options = parser.parse_known_args()[0]
    results = list(study(options.series, options.seed, options.phis))
    report(results, options.markdown)
    if options.wrong:
        for case, verdict, _, choice in results:
            if verdict in ("wrong", "lost"):
                print(verdict, case, choice.candidates, choice.order[:4])


if __name__ == "__main__":
    main()
