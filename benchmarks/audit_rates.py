"""How often an audit raises a false alarm, and how often it finds a fault, over simulated and real runs.

    python -m benchmarks audit_rates                    # simulated runs only
    python -m benchmarks.trained_runs runs --seed 1     # real trainings, about half an hour
    python -m benchmarks.audit_rates runs --seed 1      # both

Faults are counted by size, as `audit_faults` says. A `break` where the learning rate really jumped is true,
since that is one of the readings that it gives, and is counted apart from the false alarms.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.audit_faults import all_faults
from benchmarks.run_families import Family, family_names, trained_family
from benchmarks.simulated_runs import SPACINGS, draw_recipe, draw_steps, simulated_family
from normscope.remarks import SURE, Finding
from normscope.weights.soundness.breaks import find_breaks
from normscope.weights.soundness.pairs import PairTable
from normscope.weights.soundness.spacing import learn_spacing

SIMULATED = 700  # families of simulated runs, for false alarms
SPOILT = 120  # of these, families that faults are built from
FEWEST = 12  # checkpoints of a family that faults are built from
EDGES = (1.5, 2, 4)
BINS = ("< 1.5", "1.5–2", "2–4", "> 4")
Series = tuple[PairTable, np.ndarray]


def alarms(series: Series) -> list[Finding]:
    return [finding for finding in find_breaks(*series) if finding.confidence >= SURE]


def at_a_jump(finding: Finding, steps: np.ndarray, jumps: Sequence[float]) -> bool:
    """Whether this is a break, with all its readings, beside a jump of the learning rate: one of them."""
    if finding.kind != "break":
        return False
    edges = [2 * steps[0] - steps[1], *steps, 2 * steps[-1] - steps[-2]]  # what was before and comes after
    link = edges.index(finding.numbers["boundary"])
    return any(edges[link - 2] <= jump <= edges[link + 1] for jump in jumps)


def from_sums(series: Series) -> Series:
    """What the sums of a scan tell without a sample: neighbours, and the first checkpoint."""
    table, sumsq = series
    i = np.arange(len(table))
    known = (np.abs(i[:, None] - i) <= 1) | (np.minimum(i[:, None], i) == 0)
    hidden = (np.where(known, values, np.nan) for values in (table.squared, table.cosine, table.shared))
    return PairTable(table.steps, *hidden), sumsq


def sub_series(n: int) -> Iterator[list[int]]:
    """Honest parts of a series: thinned, first and last parts, windows."""
    yield list(range(n))
    yield from (list(range(first, n, every)) for every, first in ((2, 0), (2, 1), (3, 0)))
    yield sorted({round(n ** (i / 9)) - 1 for i in range(10)})
    yield from (list(range(length)) for length in range(5, n, 3))
    for length in (4, 5, 6, 8, 12):
        yield from (list(range(first, first + length)) for first in range(1, n - length + 1))


@dataclass
class CleanSeries:
    """How many clean series there were; and with a sample, and from sums alone: false and true alarms."""

    series: int = 0
    false: Counter[str] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        false, breaks = (f"{counts['sample']} / {counts['sums']}" for counts in (self.false, self.breaks))
        return (
            f"{false} false alarms in {self.series} clean series; "
            f"breaks where the learning rate did jump: {breaks}"
        )

    def add(self, family: Family, run: str, some: list[int], series: Series) -> None:
        self.series += 1
        for how, each in (("sample", series), ("sums", from_sums(series))):
            named = alarms(each)
            if named and all(at_a_jump(f, each[0].steps, family.jumps) for f in named):
                self.breaks[how] += 1
            elif named:
                self.false[how] += 1
                kinds = [f.kind for f in named]
                print(f"  false alarm, {how}: {family.name} {run}, checkpoints {some}: {kinds}")


def count_false_alarms(
    families: Iterable[Family], parts: bool, averages: bool
) -> tuple[CleanSeries, CleanSeries]:
    """Of whole series, and of parts of them."""
    whole, pieces = CleanSeries(), CleanSeries()
    for family in families:
        for run in (run for run in family.runs if averages or "ema" not in run):
            table, sumsq = family.series(family.picks(run))
            everything, *others = sub_series(len(table))
            whole.add(family, run, everything, (table, sumsq))
            for some in others if parts else ():
                if len(some) >= 4:
                    pieces.add(family, run, some, (table.only(some), sumsq[some]))
    return whole, pieces


def count_faults(families: Iterable[Family], rng: np.random.Generator, missed: bool) -> None:
    rates: defaultdict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for family in (family for family in families if len(family.steps) >= FEWEST):
        for fault in all_faults(family, rng):
            cell = rates[fault.name][int(np.digitize(fault.size, EDGES))]
            series = fault.table, fault.sumsq
            seen = bool(alarms(series))
            cell.update(total=1, seen=int(seen), blind=int(bool(alarms(from_sums(series)))))
            if missed and fault.size >= 2 and not seen:
                print(f"  missed: {family.name}, {fault.name}, size {fault.size:.2f}")
    for name, cells in rates.items():
        shown = (f"{cells[i]['seen']} / {cells[i]['blind']} of {cells[i]['total']}" for i in range(len(BINS)))
        large = sum((cells[i] for i in (2, 3)), Counter())
        share = f"{large['seen'] / large['total']:.1%}" if large["total"] else "–"
        print(f"| {name} | {' | '.join(shown)} | {share} |")


def count_gaps(count: int, rng: np.random.Generator) -> None:
    false = seen = 0
    for _ in range(count):
        steps = draw_steps(rng, str(rng.choice(SPACINGS))).tolist()
        false += any(f.confidence >= SURE for f in learn_spacing(steps).findings)
        gone = int(rng.integers(2, len(steps) - 2))
        found = learn_spacing(steps[:gone] + steps[gone + 1 :]).findings
        seen += any(
            f.kind == "gap" and abs(f.steps[0] - steps[gone]) <= 0.02 * steps[gone] + 1 for f in found
        )
    print(
        f"spacing: {false} false alarms of {count}; a missing checkpoint named: {seen} ({seen / count:.1%})"
    )


def simulated(count: int, seed: int) -> Iterator[Family]:
    rng = np.random.default_rng(seed)
    return (simulated_family(draw_recipe(rng), rng) for _ in range(count))


def report(title: str, families: Iterable[Family], parts: bool, averages: bool) -> None:
    whole, pieces = count_false_alarms(families, parts, averages)
    print(f"{title}, with a sample / from sums alone: {whole}", flush=True)
    if parts:
        print(f"parts of them: {pieces}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--missed", action="store_true", help="print every fault of size 2 or more that is missed"
    )
    parser.add_argument("--simulated", type=int, default=SIMULATED)
    parser.add_argument(
        "--averages", action="store_true", help="simulated moving averages of checkpoints too"
    )
    chosen = parser.parse_args(arguments)
    rng = np.random.default_rng(chosen.seed)
    head = f"\n| fault | {' | '.join(BINS)} | ≥ 2 |\n|---|{'---|' * (len(BINS) + 1)}"
    if chosen.folder is not None:
        names = family_names(chosen.folder)
        trained = [family for name in names if (family := trained_family(chosen.folder, name)) is not None]
        print(f"{len(trained)} families of real runs; {len(names) - len(trained)} with NaN left out")
        report("real runs and their averages", trained, parts=True, averages=True)
        print(head)
        count_faults(trained, rng, chosen.missed)
    if chosen.simulated:
        runs = simulated(chosen.simulated, 1000 + chosen.seed)
        report("simulated runs", runs, parts=False, averages=chosen.averages)
        print(head)
        count_faults(simulated(min(SPOILT, chosen.simulated), 2000 + chosen.seed), rng, chosen.missed)
    count_gaps(600, rng)


if __name__ == "__main__":
    main()
