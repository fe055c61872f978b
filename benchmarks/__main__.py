"""Run the benchmarks of `make bench`, or those given by name; print ratios measured in one run."""

import sys
from importlib import import_module

# Each module has main(); the long simulations behind docs/ (law_choice, audit_rates, …) are run by name.
SHORT = ("scan", "formats", "network", "monitor", "theory", "lab")


def main() -> None:
    for name in sys.argv[1:] or SHORT:
        print(f"\n== {name} ==", flush=True)
        import_module(f"benchmarks.{name}").main()


main()
