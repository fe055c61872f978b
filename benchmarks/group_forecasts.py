"""How well the recursion of parameter groups forecasts the last norm of recorded trainings.

    python -m benchmarks.group_forecasts FOLDER [--pattern "tune-*.db"] [--scope body]

Every run file in FOLDER was written by `ns.Monitor`. From a quarter, half and three quarters of its steps,
and with the rates that it then really had, the last norm is forecast; beside it, the errors of the last known
value and of a straight line in ρ² through the last half. The constants of `group_drive` were chosen by this.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import normscope as ns
from normscope.theory.dynamics.group_dynamics import continue_groups
from normscope.theory.dynamics.rate_groups import RateGroup, rate_groups

CUTS = (0.25, 0.5, 0.75)
METHODS = ("groups", "last value", "line in ρ²")
Array = NDArray[np.float64]


def line(steps: Array, sumsq: Array, to: float) -> float:
    """ρ² at a later step, along a straight line through the last half."""
    late = steps >= (steps[0] + steps[-1]) / 2
    slope = np.polyfit(steps[late], sumsq[late], 1)[0]
    return max(float(sumsq[-1] + slope * (to - steps[-1])), 0.0)


def errors(groups: Sequence[RateGroup], cut: float) -> list[float]:
    """The relative error of the last norm by each of METHODS, in percent."""
    end = groups[0].steps[-1]
    past = [group.until(cut * end) for group in groups]
    steps, total = past[0].steps, np.sum([group.sumsq for group in past], axis=0)
    ahead = np.unique(np.linspace(steps[-1], end, 60)[1:].round())
    found = continue_groups(past, ahead, [group.rates for group in groups])[-1]
    true = sum(float(group.sumsq[-1]) for group in groups)
    return [100 * (np.sqrt(value / true) - 1) for value in (found, total[-1], line(steps, total, end))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pattern", default="*.db")
    parser.add_argument("--scope", default="body")
    options = parser.parse_args()
    columns = [f"{method}, from {cut:.0%}" for cut in CUTS for method in METHODS]
    print("| run | groups | " + " | ".join(columns) + " |")
    print("|" + "---|" * (len(columns) + 2))
    rows = []
    for path in sorted(options.folder.glob(options.pattern)):
        with ns.Run(path) as run:
            groups = rate_groups(run, options.scope)
        rows.append([error for cut in CUTS for error in errors(groups, cut)])
        print(f"| {path.stem} | {len(groups)} | " + " | ".join(f"{e:+.1f}" for e in rows[-1]) + " |")
    for name, mean in (("median of the size", np.median), ("mean of the size", np.mean)):
        print(f"| {name} | | " + " | ".join(f"{e:.2f}" for e in mean(np.abs(rows), axis=0)) + " |")


if __name__ == "__main__":
    main()
