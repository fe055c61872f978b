"""Wait until a cluster has so many nodes: `python -m normscope.engines.waiting ray:head:6379 4`."""

from __future__ import annotations

import sys
import time

from normscope.engines.engine import named_executor
from normscope.engines.nodes import HasNodes
from normscope.errors import EngineError, NormscopeError, UsageError

PATIENCE = 600.0
PAUSE = 0.5


def wait_for_nodes(engine: str, count: int, patience: float = PATIENCE) -> int:
    """Return the number of nodes as soon as there are `count`; EngineError after `patience` seconds.

    While nobody answers at the address yet, it is tried again.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            found, reason = _nodes(engine), ""
        except EngineError as error:
            found, reason = 0, f": {error}"
        if found >= count:
            return found
        if time.monotonic() > deadline:
            raise EngineError(f"{engine} has {found} of {count} nodes after {patience:.0f} seconds{reason}")
        time.sleep(PAUSE)


def _nodes(engine: str) -> int:
    with named_executor(engine) as executor:
        if not isinstance(executor, HasNodes):
            raise UsageError(f"{engine} is this machine: only the nodes of a cluster are waited for")
        return len(executor.nodes())


def main() -> None:
    """Wait for the engine and the number of nodes of the command line."""
    try:
        engine, count = sys.argv[1], int(sys.argv[2])
    except (IndexError, ValueError):
        sys.stderr.write("usage: python -m normscope.engines.waiting ray:HEAD:6379 NODES\n")
        raise SystemExit(2) from None
    try:
        sys.stderr.write(f"{engine} has {wait_for_nodes(engine, count)} nodes\n")
    except NormscopeError as error:
        sys.stderr.write(f"normscope: {error}\n")
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
