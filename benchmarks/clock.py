"""Fair timing on a noisy machine: functions take turns, and the best time of each counts."""

import time


def race(contestants, rounds=5):
    """{name: callable} → {name: best seconds}; each round calls every one once, so noise hits all alike."""
    return race_by(contestants, rounds, time.perf_counter)[0]


def race_by(contestants, rounds, *clocks):
    """Like `race`, by several clocks at once: one dictionary for each."""
    best = [dict.fromkeys(contestants, float("inf")) for _ in clocks]
    for _ in range(rounds):
        for name, run in contestants.items():
            began = [clock() for clock in clocks]
            run()
            for times, clock, start in zip(best, clocks, began, strict=True):
                times[name] = min(times[name], clock() - start)
    return best
