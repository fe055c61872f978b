"""The other end of the local pool: run calls that arrive on stdin, answer on stdout.

Started as `python -m normscope.lab.sweep.worker`, so that a caller's main module is never imported again.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, BinaryIO

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def main() -> None:
    """Serve until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    outbox = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a call prints must not mix with answers
    calls: SimpleQueue[Call] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, calls), daemon=True).start()
    while True:
        answer = _run(calls.get())
        outbox.write(answer)
        outbox.flush()


def _read(inbox: BinaryIO, calls: SimpleQueue[Call]) -> None:
    """Hand on the calls; when the parent is gone, stop in the middle of whatever is running.

    A cell that ran on unseen would write into the folder of the next attempt.
    """
    try:
        while True:
            calls.put(pickle.load(inbox))  # noqa: S301 - our own parent wrote it
    finally:
        os._exit(0)


def _run(call: Call) -> bytes:
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
