"""`python -m tests.fuzz [FORMAT...] --cases 10000`: what became of the cases; exit code 1 for a fault."""

import argparse
import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from .children import run
from .grammars import GRAMMARS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", help=f"of {', '.join(GRAMMARS)}")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first case, to run a single one again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one line per format, for the tests")
    chosen = parser.parse_args()
    faulty = False
    for name in chosen.formats or GRAMMARS:
        report = run(GRAMMARS[name], chosen.seed, range(chosen.first, chosen.first + chosen.cases))
        faulty |= bool(report.faults)
        if chosen.json:
            print(json.dumps(vars(report)), flush=True)
            continue
        kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds.most_common())
        print(
            f"{name}: {report.cases:,} cases; {kinds}; slowest {report.slowest:.2f} s, "
            f"most memory {report.largest / 1e6:.0f} MB; {len(report.faults)} faults",
            flush=True,
        )
        for index, fault in list(report.faults.items())[:20]:
            print(f"  case {index}: {fault}", flush=True)
    return int(faulty)


if __name__ == "__main__":
    sys.exit(main())
