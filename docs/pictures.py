"""Draw the pictures of why-norms-grow.md again; needs normscope[figures] and Chromium."""

from pathlib import Path

import normscope as ns

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    """The growth of T5-base, and what it is made of."""
    ns.plot(ns.fit_growth("t5-base"), IMAGES / "t5-growth.svg", x_axis="sqrt", width=900)
    ns.plot(ns.norm_budget("t5-base"), IMAGES / "t5-budget.svg", width=900)


if __name__ == "__main__":
    main()
