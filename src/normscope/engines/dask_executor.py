"""Dask behind `concurrent.futures.Executor`: its scheduler repeats the calls of a worker that dies."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from normscope.engines.connection import CONNECT_SECONDS, check_reachable
from normscope.engines.nodes import Node
from normscope.engines.pool import CallParams, CallResult
from normscope.errors import EngineError, WorkerLost
from normscope.plugins import require


class DaskExecutor(Executor):
    """Runs calls on the workers of a Dask cluster, one per thread of a worker."""

    def __init__(self, address: str) -> None:
        distributed = require("distributed", "dask", "the engine 'dask'")
        check_reachable(address)
        try:
            self._client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise EngineError(f"could not connect to Dask at {address}: {error}") from None
        self._killed: type[Exception] = distributed.scheduler.KilledWorker

    @property
    def workers(self) -> int:
        """Threads of all workers at this moment."""
        return max(1, sum(int(each["nthreads"]) for each in self._workers().values()))

    def nodes(self) -> list[Node]:
        """The workers: each may run with a Python of its own."""
        return [Node(address, f"{each['host']} ({address})") for address, each in self._workers().items()]

    def submit(
        self, fn: Callable[CallParams, CallResult], /, *args: CallParams.args, **kwargs: CallParams.kwargs
    ) -> Future[CallResult]:
        """Call `fn` on any worker."""
        return DaskFuture(self._client.submit(call_plainly, fn, args, kwargs, pure=False), self._killed)

    def submit_to(self, node: Node, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call `fn` on that worker."""
        where = {"workers": [node.id], "allow_other_workers": False}
        return DaskFuture(self._client.submit(call_plainly, fn, args, {}, pure=False, **where), self._killed)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect; calls that have not started are dropped."""
        self._client.close()

    def _workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return found


def call_plainly(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The task itself: arguments in a tuple are not searched for other tasks."""
    return fn(*args, **kwargs)


class DaskFuture(Future[Any]):
    """The result of a task. Cancelling it drops a task that waits; Dask cannot end one that is running."""

    def __init__(self, inner: Any, killed: type[Exception]) -> None:
        super().__init__()
        self._inner, self._killed = inner, killed
        inner.add_done_callback(self._arrive)

    def cancel(self) -> bool:
        """Cancel both."""
        cancelled = super().cancel()
        if cancelled:
            self._inner.cancel()
        return cancelled

    def _arrive(self, inner: Any) -> None:
        if not self.set_running_or_notify_cancel():
            return
        if inner.status == "finished":
            self.set_result(inner.result())
            return
        error = inner.exception() if inner.status == "error" else None
        if error is None or isinstance(error, self._killed):
            error = WorkerLost(f"Dask lost the call: {error or inner.status}")
        self.set_exception(error)
