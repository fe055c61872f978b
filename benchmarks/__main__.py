"""Run the benchmarks of `make bench`, or those given by name; print ratios measured in one run."""

import sys
from importlib import import_module
from itertools import takewhile

# Each module has main(). Run by name: cluster, and the long simulations behind docs/ (law_choice, …).
SHORT = ("scan", "formats", "network", "monitor", "theory", "lab", "literature", "report", "serve")


def main() -> None:
    named = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))  # then come their options
    for name in named or SHORT:
        print(f"\n== {name} ==", flush=True)
        import_module(f"benchmarks.{name}").main()


main()
