"""How good forecasts are on real trainings, beside the last value and a·√t + b.

    python -m benchmarks forecast [--runs FOLDER] [--logs FOLDER] [--part tune|look|last-look] [--calibrate]

From 25, 50 and 75 % of each series the last step is forecast. `growth`: T5-base and the trainings of
`growth_runs`, from norms alone and with the recorded rates. `trouble`: the trainings of `grokking_runs`, and
the columns *_norm of the CSV files in a folder of other people's logs. Trainings that FOLDER does not have
yet are made first, which takes about half an hour on two cores. `--calibrate` fits the factors of the
interval anew.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import grokking_runs, growth_runs
from normscope.run import Run
from normscope.theory.dynamics.rate_groups import RateGroup, rate_groups
from normscope.theory.forecasts.combination import combine
from normscope.theory.forecasts.conformal import features
from normscope.theory.forecasts.forecast import forecast_series
from normscope.theory.forecasts.past import Past
from normscope.theory.logs.log_registry import read_log
from normscope.theory.measures.log_series import log_series
from normscope.theory.measures.measures import run_series
from normscope.theory.measures.time_series import Series, reference

CUTS = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Case:
    """One series, the run it belongs to, and the parameter groups behind it if their rates are used."""

    run: str
    series: Series
    groups: tuple[RateGroup, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Errors of one forecast in per cent, and its interval as a half-width in logarithms."""

    run: str
    cut: float
    ours: float
    last: float
    root: float
    inside: bool
    width: float
    error: float  # |log| of forecast over truth


def grown(paths: Sequence[Path], rates: bool) -> Iterator[Case]:
    """The body and all parameters of the runs."""
    for path in paths:
        with Run(path) as run:
            for scope in ("body", "all"):
                (series,) = run_series(run, "norm", scope=scope)
                yield Case(path.stem, series, rate_groups(run, scope) if rates else ())


def logged(paths: Sequence[Path]) -> Iterator[Case]:
    """Every norm of the logs."""
    for path in sorted(paths):
        for column in (name for name in read_log(path).columns if name.endswith("_norm")):
            if column != "applied_update_norm":
                yield Case(path.stem, log_series(path, column))


def outcome(case: Case, cut: float) -> Outcome:
    steps, values = case.series.steps, case.series.values
    kept = steps <= cut * steps[-1]
    known = Series(case.run, steps[kept], values[kept], case.series.unit)
    found = forecast_series(known, int(steps[-1]), groups=case.groups)
    truth = float(values[-1])
    errors = [
        100 * abs(guess / truth - 1) for guess in (found.value, found.naive["last"], found.naive["sqrt"])
    ]
    inside, width = found.low <= truth <= found.high, float(np.log(found.high / found.low)) / 2
    return Outcome(case.run, cut, *errors, inside, width, abs(float(np.log(found.value / truth))))


def table(name: str, cases: Sequence[Case]) -> None:
    """One row per known part; `needed` is the width that a constant 95 % interval of this pool would have."""
    for cut in CUTS:
        rows = [outcome(case, cut) for case in cases]
        ours, last, root = (np.median([getattr(row, n) for row in rows]) for n in ("ours", "last", "root"))
        close = np.mean([row.ours <= row.last + 1 for row in rows])
        inside, width = np.mean([row.inside for row in rows]), np.median([row.width for row in rows])
        needed = float(np.quantile([row.error for row in rows], 0.95))
        ratio = ours / min(last, root)
        cells = [f"{ours:.1f}", f"{last:.1f}", f"{root:.1f}", f"{ratio:.2f}", f"{close:.0%}", f"{inside:.0%}"]
        cells += [f"±{100 * np.expm1(width):.0f} %", f"±{100 * np.expm1(needed):.0f} %"]
        print(f"| {name} | {cut:.0%} | {len(rows)} | " + " | ".join(cells) + " |", flush=True)


def calibrate(pools: dict[str, list[Case]]) -> None:
    """Print the factors of the interval: every pool has the same weight."""
    from scipy.optimize import linprog

    rows, errors, weights = [], [], []
    for cases in pools.values():
        for case in cases:
            for cut in CUTS:
                steps, values = case.series.steps.astype(float), case.series.values
                futures = tuple(group.rates for group in case.groups)
                past = Past.of(steps, values, case.groups, futures).until(cut * steps[-1])
                found = combine(past, float(steps[-1]))
                moved = found.moved(steps[-1:])
                rows.append(features(found, steps[-1:], moved)[:, 0])
                errors.append(abs(float(moved[0] - past.moved(values[-1:])[0])))
                weights.append(1 / len(cases))
    table, error, weight = np.array(rows) + 1e-6, np.array(errors), np.array(weights)
    count, terms = table.shape
    cost = np.concatenate([np.zeros(terms), 0.95 * weight, 0.05 * weight])
    equal = np.hstack([table, np.eye(count), -np.eye(count)])
    factors = linprog(cost, A_eq=equal, b_eq=error, bounds=(0, None)).x[:terms]
    order = np.argsort(error / (table @ factors))
    within = np.cumsum(weight[order]) / weight.sum()
    scale = (error / (table @ factors))[order][np.searchsorted(within, 0.95)]
    print(
        "MOVE, SPREAD, STEERED, ERROR, SWING =", np.round(scale * factors, 2), "scale", round(float(scale), 2)
    )


def pools_of(options: argparse.Namespace, folder: Path) -> dict[str, list[Case]]:
    runs = growth_runs.train_all(folder, [options.part])[options.part]
    t5 = reference("t5-base")
    own = grokking_runs.train_all(folder)
    others = [path for path in options.logs.glob("*.csv") if path.stem != "runs"] if options.logs else []
    return {
        "growth, norms alone": [Case("t5-base", t5), *grown(runs, rates=False)],
        "growth, rates recorded": list(grown(runs, rates=True)),
        **({"trouble, others' logs": list(logged(others))} if others else {}),
        "trouble, modular addition": list(logged(own)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--part", choices=list(growth_runs.PARTS), default="last-look")
    parser.add_argument("--calibrate", action="store_true")
    options = parser.parse_known_args()[0]
    with tempfile.TemporaryDirectory() as folder:
        pools = pools_of(options, options.runs or Path(folder))
        if options.calibrate:
            calibrate(pools)
        head = "series|known|number|error %|last value|√t fit|ratio|as good as last|inside|interval|needed"
        print("| " + head.replace("|", " | ") + " |\n|" + "---|" * (head.count("|") + 1))
        for name, cases in pools.items():
            table(name, cases)


if __name__ == "__main__":
    main()
