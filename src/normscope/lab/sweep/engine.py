"""Where cells run: an address becomes a `concurrent.futures.Executor`.

local, local:4        processes on this machine, one a core or as many as given
ray                   a Ray that runs here already, or one started for the occasion
ray://head:10001      a cluster, through its client server
ray:head:6379         a cluster this machine is a node of
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, Protocol, TypeVar

from normscope.errors import MissingExtra, TrainingError, UsageError
from normscope.lab.sweep.pool import LocalExecutor

P = ParamSpec("P")
T = TypeVar("T")
RETRIES = 5  # times Ray may try a call again whose worker or node died
SECONDS_TO_ANSWER = 5.0


class Submits(Protocol):
    """All that a sweep asks of an executor; submitit's and others have it without being standard ones."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Something with a `result()`, at best a standard future."""


def standard(promise: Any) -> Future[Any]:
    """A standard future; one that is not is waited for in a thread of its own."""
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
    """The executor behind an address; local processes when there is none."""
    kind, _, rest = (address or "local").partition(":")
    if kind == "local":
        return LocalExecutor(_count(rest))
    if kind == "ray":
        return RayExecutor(rest.removeprefix("//"), client=rest.startswith("//"))
    raise UsageError(f"an engine is local, local:4, ray or ray://head:10001, not {address!r}")


def _count(text: str) -> int | None:
    if text and (not text.isdigit() or int(text) < 1):
        raise UsageError(f"expected a number of processes such as local:4, but got local:{text}")
    return int(text) if text else None


class RayExecutor(Executor):
    """Ray's tasks, one core each; a call whose worker or node dies is tried again elsewhere."""

    def __init__(self, address: str = "", client: bool = False) -> None:
        self._ray = _ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(address, client)
        self._call = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_call)

    def _connect(self, address: str, client: bool) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address:
            _check_reachable(address)
            options["address"] = f"ray://{address}" if client else address
        try:
            self._ray.init(**options)
        except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
            raise TrainingError(f"Ray at {address or 'this machine'} did not take us: {error}") from None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` somewhere in the cluster."""
        future: Future[T] = self._call.remote(fn, args, kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, if this executor joined it; a Ray started here ends."""
        if self._started:
            self._ray.shutdown()


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "the engine 'ray'") from None
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself would keep trying for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"a Ray address is HOST:PORT, as ray://head:10001, not {address!r}")
    try:
        socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()
    except OSError as error:
        reason = error.strerror or "it does not answer"
        raise TrainingError(
            f"no engine at {address}: {reason}; is the cluster up, and the port right?"
        ) from None
