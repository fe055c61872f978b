"""Where cells run: an address becomes a `concurrent.futures.Executor`.

local, local:4        processes on this machine: one per core, or the number given
ray                   the Ray that runs on this machine, or one started for this sweep
ray://head:10001      a Ray cluster, through its client server
ray:head:6379         a Ray cluster that this machine is a node of
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Protocol, runtime_checkable

from normscope.errors import TrainingError, UsageError
from normscope.lab.sweep.pool import CallParams, CallResult, LocalExecutor
from normscope.plugins import require

RETRIES = 5  # of a call whose worker or node died
CONNECT_SECONDS = 5.0


@runtime_checkable
class SupportsSubmit(Protocol):
    """What a sweep needs of an executor: `submit`. Those of submitit and others have it too.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> isinstance(ThreadPoolExecutor(), ns.SupportsSubmit)
    True
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return an object with a `result()`, preferably a standard future."""


def as_standard_future(promise: Any) -> Future[Any]:
    """Wrap any future as a concurrent.futures.Future, waiting for its result in a thread."""
    if isinstance(promise, Future):
        return promise
    future: Future[Any] = Future()

    def wait() -> None:
        try:
            future.set_result(promise.result())
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    threading.Thread(target=wait, daemon=True).start()
    return future


def open_engine(address: str | None = None) -> Executor:
    """Return the executor of an address; local processes by default."""
    kind, rest = check_address(address)
    if kind == "local":
        return LocalExecutor(_count(rest))
    return RayExecutor(rest.removeprefix("//"), client=rest.startswith("//"))


def check_address(address: str | None) -> tuple[str, str]:
    """Return the kind of an address and what follows it; nothing is started."""
    kind, _, rest = (address or "local").partition(":")
    if kind == "local":
        _count(rest)
    elif kind != "ray":
        raise UsageError(f"an engine is local, local:4, ray or ray://head:10001, not {address!r}")
    return kind, rest


def _count(text: str) -> int | None:
    if text and (not text.isdigit() or int(text) < 1):
        raise UsageError(f"expected a number of processes such as local:4, but got local:{text}")
    return int(text) if text else None


class RayExecutor(Executor):
    """Runs calls as Ray tasks of one core; if a worker or node dies, its call is tried again elsewhere."""

    def __init__(self, address: str = "", client: bool = False) -> None:
        self._ray = _ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(address, client)
        self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_call_function)

    def _connect(self, address: str, client: bool) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address:
            _check_reachable(address)
            options["address"] = f"ray://{address}" if client else address
        try:
            self._ray.init(**options)
        except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
            place = address or "this machine"
            raise TrainingError(f"could not connect to Ray at {place}: {error}") from None

    def submit(
        self, fn: Callable[CallParams, CallResult], /, *args: CallParams.args, **kwargs: CallParams.kwargs
    ) -> Future[CallResult]:
        """Call `fn` on a node of the cluster."""
        future: Future[CallResult] = self._task.remote(fn, args, kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, if this executor connected; a Ray that was started here ends."""
        if self._started:
            self._ray.shutdown()


def _call_function(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _ray() -> Any:
    return require("ray", "ray", "the engine 'ray'")


def _check_reachable(address: str) -> None:
    """Fail within seconds: Ray itself would keep trying for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"a Ray address is HOST:PORT, such as ray://head:10001, not {address!r}")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise TrainingError(
            f"no engine at {address}: {reason}; check that the cluster runs and that the port is right"
        ) from None
