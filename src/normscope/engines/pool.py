"""Local worker processes behind `concurrent.futures.Executor`, each with a single thread.

Unlike the standard library's process pool, this one survives a worker that dies (killed, out of
memory): only its own call is lost, and is tried again.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from normscope.errors import WorkerLost

CallParams = ParamSpec("CallParams")
CallResult = TypeVar("CallResult")
ATTEMPTS = 3
SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class _PendingCall:
    future: Future[Any]
    message: bytes


class LocalExecutor(Executor):
    """`workers` processes on this machine; functions and arguments must pickle."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._calls: SimpleQueue[_PendingCall | None] = SimpleQueue()
        self._closed = self._killed = False
        self._workers: set[_Worker] = set()
        self._starting = threading.Lock()  # a worker is known before it can be missed by a kill
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.workers)]
        for thread in self._threads:
            thread.start()

    def submit(
        self, fn: Callable[CallParams, CallResult], /, *args: CallParams.args, **kwargs: CallParams.kwargs
    ) -> Future[CallResult]:
        """Call `fn` in one of the processes."""
        if self._closed:
            raise RuntimeError("the pool has been shut down")
        future: Future[CallResult] = Future()
        self._calls.put(_PendingCall(future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the workers finish; with `cancel_futures`, calls that have not started are cancelled."""
        self._closed = True
        if cancel_futures:
            self._cancel()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Wait for running calls; after an exception, such as Ctrl-C, kill them instead."""
        if kind is not None:
            self._closed = True
            self._cancel()
            with self._starting:
                self._killed = True
                for worker in list(self._workers):
                    worker.kill()
        self.shutdown()

    def _cancel(self) -> None:
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                call.future.cancel()

    def _serve(self) -> None:
        """Feed one process from one thread, and start another process if it dies."""
        worker: _Worker | None = None
        while (call := self._calls.get()) is not None:
            if call.future.set_running_or_notify_cancel():
                worker = self._complete(call, worker)
        if worker is not None:
            self._stop(worker)

    def _start(self) -> _Worker | None:
        with self._starting:
            if self._killed:
                return None
            worker = _Worker()
            self._workers.add(worker)
            return worker

    def _stop(self, worker: _Worker) -> int:
        self._workers.discard(worker)
        return worker.stop()

    def _complete(self, call: _PendingCall, worker: _Worker | None) -> _Worker | None:
        code = 0
        for _ in range(ATTEMPTS):
            worker = worker or self._start()
            if worker is None:
                break
            try:
                succeeded, value = worker.ask(call.message)
            except (EOFError, OSError, pickle.UnpicklingError):
                code, worker = self._stop(worker), None
                continue
            except Exception as error:  # the answer cannot be unpickled here
                succeeded, value = False, error
            if succeeded:
                call.future.set_result(value)
            else:
                call.future.set_exception(value)
            return worker
        call.future.set_exception(WorkerLost(f"the worker process died {ATTEMPTS} times (exit code {code})"))
        return None


class _Worker:
    """One process and the pipes to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "normscope.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | SINGLE_THREAD | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def ask(self, message: bytes) -> tuple[bool, Any]:
        """Send a call and wait for its answer."""
        inbox, outbox = self._process.stdin, self._process.stdout
        assert inbox is not None
        assert outbox is not None
        inbox.write(message)
        inbox.flush()
        answer: tuple[bool, Any] = pickle.load(outbox)  # noqa: S301 - our own child wrote it
        return answer

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def stop(self) -> int:
        """Close the pipes, which ends the process, and return its exit code."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # nobody is left to read what was not sent
                    pipe.close()
        return self._process.wait()
