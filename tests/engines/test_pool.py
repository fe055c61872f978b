"""The local pool: a standard executor whose workers may die."""

import os
import signal
import threading
import time
from concurrent.futures import as_completed
from pathlib import Path

import pytest

from normscope.engines import pool as pool_module
from normscope.engines.dask_executor import DaskFuture
from normscope.engines.pool import LocalExecutor
from normscope.errors import WorkerLost


def kill_self(until: str | None = None) -> str:
    """Dies, unless a file says that it has died before."""
    if until is not None:
        if Path(until).exists():
            return "survived"
        Path(until).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def threads() -> tuple[int, str]:
    return os.getpid(), os.environ["OMP_NUM_THREADS"]


def test_a_pool_is_an_executor(tmp_path):
    with LocalExecutor(2) as pool:
        assert list(pool.map(pow, [2, 3, 4], [5, 6, 7])) == [32, 729, 16384]
        assert pool.submit(int, "7", base=8).result() == 7
        with pytest.raises(ValueError, match="invalid literal"):
            pool.submit(int, "x").result()
        first, second = pool.submit(time.sleep, 0.2), pool.submit(threads)
        assert second.result()[0] != os.getpid()
        assert second.result()[1] == "1"
        assert {first, second} == set(as_completed([first, second]))
        pool.submit(print, "not an answer").result()
        # a worker dies: its call is tried again, and the others never notice
        others = [pool.submit(abs, -n) for n in range(5)]
        assert pool.submit(kill_self, str(tmp_path / "died")).result() == "survived"
        with pytest.raises(WorkerLost, match="died 3 times"):
            pool.submit(kill_self).result()
        assert [other.result() for other in others] == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(abs, 1)


def test_an_exception_ends_what_is_running():
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), LocalExecutor(1) as pool:
        running, waiting = pool.submit(time.sleep, 300), pool.submit(time.sleep, 300)
        while not running.running():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert waiting.cancelled()
    assert isinstance(running.exception(), WorkerLost)
    assert time.monotonic() - began < 60


def test_a_process_that_is_just_being_started_is_killed_too(monkeypatch):
    began, starting, may_go_on = time.monotonic(), threading.Event(), threading.Event()

    def slow_start(worker):
        starting.set()
        may_go_on.wait(60)
        start(worker)

    start = pool_module._Worker.__init__
    monkeypatch.setattr(pool_module._Worker, "__init__", slow_start)
    threading.Timer(0.5, may_go_on.set).start()
    with pytest.raises(KeyboardInterrupt), LocalExecutor(1) as pool:
        running = pool.submit(time.sleep, 300)
        starting.wait(60)
        raise KeyboardInterrupt
    assert isinstance(running.exception(), WorkerLost)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("status", ["finished", "error", "killed", "lost", "cancelled"])
def test_a_call_that_dask_lost_says_why(status):
    class Killed(Exception):
        pass

    class Ended:
        """A future of Dask's that has ended: these are the parts of it that are used."""

        def __init__(self):
            self.status = "error" if status == "killed" else status

        def add_done_callback(self, call):
            call(self)

        def result(self):
            return 7

        def exception(self):
            return Killed("worker 3 died") if status == "killed" else ZeroDivisionError("by zero")

    future = DaskFuture(Ended(), Killed)
    said = {"killed": "Dask lost the call: worker 3 died", "error": "by zero"}
    if status == "finished":
        assert future.result(0) == 7
    else:
        error = future.exception(0)
        assert type(error) is (ZeroDivisionError if status == "error" else WorkerLost)
        assert str(error) == said.get(status, f"Dask lost the call: {status}")


def test_shutdown_cancels_what_waits():
    pool = LocalExecutor(1)
    running = pool.submit(time.sleep, 0.5)
    waiting = [pool.submit(time.sleep, 60) for _ in range(3)]
    while not running.running():
        time.sleep(0.01)
    pool.shutdown(cancel_futures=True)
    assert running.done()
    assert all(future.cancelled() for future in waiting)
