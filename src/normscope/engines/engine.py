"""Open an engine by its name, or use an executor of the caller's own.

processes, processes:4    processes on this machine: one per core, or the number given
ray                       the Ray that runs on this machine, or one started for this work
ray://head:10001          a Ray cluster, through its client server
ray:head:6379             a Ray cluster that this machine is a node of
dask:scheduler:8786       a Dask cluster, by the address of its scheduler
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from normscope.engines.dask_executor import DaskExecutor
from normscope.engines.engine_names import parse_engine
from normscope.engines.pool import LocalExecutor
from normscope.engines.ray_executor import RayExecutor
from normscope.errors import UsageError


@runtime_checkable
class SupportsSubmit(Protocol):
    """What an engine needs: `submit`. Any `concurrent.futures.Executor` has it; submitit's have it too.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> isinstance(ThreadPoolExecutor(), ns.SupportsSubmit)
    True
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return an object with a `result()`, preferably a standard future."""


EngineLike = SupportsSubmit | str | None
"""An executor, the name of an engine, or None for the default."""


def check_engine(engine: EngineLike) -> None:
    """Refuse what is not an engine; nothing is started."""
    if isinstance(engine, str):
        parse_engine(engine)
    elif not isinstance(engine, SupportsSubmit | None):
        raise UsageError(f"engine must be a name such as processes:4, or an executor; got {engine!r}")


@contextmanager
def open_engine(engine: EngineLike) -> Iterator[SupportsSubmit]:
    """Yield the executor that was given, or open the one of a name until the block ends."""
    if isinstance(engine, str | None):
        with named_executor(engine) as executor:
            yield executor
    else:
        yield engine


def named_executor(name: str | None = None) -> Executor:
    """Return the executor of a name; local processes by default."""
    parsed = parse_engine(name)
    if parsed.kind == "processes":
        return LocalExecutor(parsed.processes)
    if parsed.kind == "ray":
        return RayExecutor(parsed.address, client=parsed.client)
    return DaskExecutor(parsed.address)


def count_workers(engine: SupportsSubmit) -> int | None:
    """Return how many calls an engine runs at a time, if it says so."""
    for name in ("workers", "_max_workers"):  # the second is that of the standard library's executors
        count = getattr(engine, name, None)
        if isinstance(count, int) and count > 0:
            return count
    return None


def as_standard_future(promise: Any) -> Future[Any]:
    """Wrap any future as a concurrent.futures.Future, waiting for its result in a thread."""
    if isinstance(promise, Future):
        return promise
    future = _WrappedFuture(promise)
    threading.Thread(target=future.wait_for_result, daemon=True).start()
    return future


class _WrappedFuture(Future[Any]):
    """A future of another library; cancelling it cancels that one too, if it can be cancelled."""

    def __init__(self, promise: Any) -> None:
        super().__init__()
        self._promise = promise

    def wait_for_result(self) -> None:
        """Wait, and take over the result, unless the future was cancelled meanwhile."""
        try:
            value, error = self._promise.result(), None
        except BaseException as raised:
            value, error = None, raised
        if self.set_running_or_notify_cancel():
            self.set_exception(error) if error is not None else self.set_result(value)

    def cancel(self) -> bool:
        """Cancel both futures."""
        cancelled = super().cancel()
        if cancelled and callable(cancel := getattr(self._promise, "cancel", None)):
            cancel()
        return cancelled
