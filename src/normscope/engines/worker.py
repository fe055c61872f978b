"""A process of the local pool: reads calls from stdin, writes results to stdout.

Started as `python -m normscope.engines.worker`, so the main module of the caller is not imported again.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from queue import SimpleQueue
from typing import Any, BinaryIO

FunctionCall = tuple[Any, tuple[Any, ...], dict[str, Any]]


def main() -> None:
    """Serve until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    warnings.filterwarnings("ignore", "the multiplicative mask")  # the sweep says it once for all cells
    outbox = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a call prints must not mix with results
    calls: SimpleQueue[FunctionCall] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, calls), daemon=True).start()
    while True:
        answer = _run(calls.get())
        outbox.write(answer)
        outbox.flush()


def _read(inbox: BinaryIO, calls: SimpleQueue[FunctionCall]) -> None:
    """Queue the calls; when the parent is gone, end the process in the middle of a call.

    A cell that kept running would write into the folder of the next attempt.
    """
    try:
        while True:
            calls.put(pickle.load(inbox))  # noqa: S301 - our own parent wrote it
    finally:
        os._exit(0)


def _run(call: FunctionCall) -> bytes:
    function, args, kwargs = call
    try:
        return pickle.dumps((True, function(*args, **kwargs)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:
            return pickle.dumps((False, RuntimeError(repr(error))))


if __name__ == "__main__":
    main()
