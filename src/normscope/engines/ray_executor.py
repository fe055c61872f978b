"""Ray behind `concurrent.futures.Executor`: calls are tasks that survive the death of a worker or a node."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from normscope.engines.connection import check_reachable
from normscope.engines.nodes import Node
from normscope.engines.pool import CallParams, CallResult
from normscope.errors import EngineError, WorkerLost
from normscope.plugins import require

RETRIES = 5  # of a call whose worker or node died


class RayExecutor(Executor):
    """Runs calls as Ray tasks of one core; if a worker or node dies, its call is tried again elsewhere."""

    def __init__(self, address: str = "", client: bool = False) -> None:
        self._ray = require("ray", "ray", "the engine 'ray'")
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(address, client)
        self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(call_function)

    def _connect(self, address: str, client: bool) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address:
            check_reachable(address)
            options["address"] = f"ray://{address}" if client else address
        try:
            self._ray.init(**options)
        except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
            place = address or "this machine"
            raise EngineError(f"could not connect to Ray at {place}: {error}") from None

    @property
    def workers(self) -> int:
        """Cores of the cluster at this moment."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def nodes(self) -> list[Node]:
        """The nodes that are alive and have cores."""
        return [
            Node(each["NodeID"], f"{each['NodeManagerHostname']} ({each['NodeID'][:8]})")
            for each in self._ray.nodes()
            if each["Alive"] and each["Resources"].get("CPU", 0) >= 1
        ]

    def submit(
        self, fn: Callable[CallParams, CallResult], /, *args: CallParams.args, **kwargs: CallParams.kwargs
    ) -> Future[CallResult]:
        """Call `fn` on a node of the cluster."""
        return RayFuture(self._ray, self._task.remote(fn, args, kwargs))

    def submit_to(self, node: Node, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call `fn` on that node, also if all its cores are busy."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        task = self._task.options(num_cpus=0, scheduling_strategy=there)
        return RayFuture(self._ray, task.remote(fn, args, {}))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, if this executor connected; a Ray that was started here ends."""
        if self._started:
            self._ray.shutdown()


def call_function(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The task itself."""
    return fn(*args, **kwargs)


class RayFuture(Future[Any]):
    """The result of a task. Cancelling it ends the task, also one that is running."""

    def __init__(self, ray: Any, reference: Any) -> None:
        super().__init__()
        self._ray, self._reference = ray, reference
        reference.future().add_done_callback(self._arrive)

    def cancel(self) -> bool:
        """Cancel the task; its worker is ended, because Python in the middle of a call cannot be."""
        cancelled = super().cancel()
        if cancelled:
            with suppress(Exception):  # Ray is gone, and the task with it
                self._ray.cancel(self._reference, force=True)
        return cancelled

    def _arrive(self, inner: Future[Any]) -> None:
        if not self.set_running_or_notify_cancel():
            return
        error = inner.exception()
        if error is None:
            self.set_result(inner.result())
        else:
            self.set_exception(self._plain(error))

    def _plain(self, error: BaseException) -> BaseException:
        """The exception of the function itself, or WorkerLost; Ray's own contain pages of advice."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            cause = getattr(error, "cause", None)
            return cause if isinstance(cause, BaseException) else error
        if isinstance(error, self._ray.exceptions.RayError):
            first = str(error).strip().partition("\n")[0]
            return WorkerLost(f"Ray lost the call after {RETRIES} retries: {type(error).__name__}: {first}")
        return error
