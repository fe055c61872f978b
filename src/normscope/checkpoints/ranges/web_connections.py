"""HTTP connections that are kept open, and end by a deadline whatever the server sends.

Python's own http.client, because it can be watched at every byte: a time between bytes and a total time
hold while a connection is made, while headers arrive and while a body arrives.
"""

from __future__ import annotations

import atexit
import base64
import http.client
import io
import selectors
import socket
import ssl
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from normscope._version import __version__
from normscope.checkpoints.ranges.retry import Transient, error_summary, is_refusal
from normscope.checkpoints.ranges.web_answers import PIECE, FinalResponse, WebAnswer

KEPT = 32
"""Connections to one server that are kept open while nobody uses them."""


@dataclass(frozen=True)
class TimeLimits:
    """Seconds without a byte, and when (on the monotonic clock) all must have arrived."""

    idle: float
    deadline: float


@contextmanager
def get(url: str, headers: Mapping[str, str], limits: TimeLimits) -> Iterator[WebAnswer]:
    """Make one GET request, without following redirects; network failures become Transient.

    A kept connection that the server has closed meanwhile is replaced by a new one.
    """
    address = urlsplit(url)
    try:
        connection, response = _send(address, headers, limits)
        answer = WebAnswer(response)
        try:
            yield answer
        finally:
            if answer.read_to_the_end:
                _kept.give_back(_origin(address), connection)
            else:
                answer.close()
                connection.close()
    except TimeoutError:
        late = time.monotonic() >= limits.deadline
        reason = (
            "the answer took too long" if late else f"the server sent nothing for {limits.idle:g} seconds"
        )
        raise Transient(reason, slow=True) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(error) if is_refusal(error) else Transient(error_summary(error)) from None


class Unreachable(Transient):
    """Nobody listens at the address, or its name is unknown."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error_summary(error))


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what may see the credentials of a request."""
    return _origin(urlsplit(url))


def _origin(address: SplitResult) -> tuple[str, str, int]:
    scheme = address.scheme.lower()
    return scheme, (address.hostname or "").lower(), address.port or (443 if scheme == "https" else 80)


def _send(
    address: SplitResult, headers: Mapping[str, str], limits: TimeLimits
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    kept = _kept.take(_origin(address))
    if kept is not None:
        try:
            return kept, _ask(kept, address, headers, limits)
        except (ConnectionError, http.client.HTTPException):  # the server may have closed it meanwhile
            kept.close()
        except BaseException:
            kept.close()
            raise
    connection = _connect(address, limits)
    try:
        return connection, _ask(connection, address, headers, limits)
    except BaseException:
        connection.close()
        raise


def _ask(
    connection: http.client.HTTPConnection,
    address: SplitResult,
    headers: Mapping[str, str],
    limits: TimeLimits,
) -> http.client.HTTPResponse:
    timed: Any = connection.sock
    timed.limits = limits
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    sent = {"Host": _netloc(address), "User-Agent": f"normscope/{__version__}", **headers}
    proxy = _proxy(address)
    if proxy is not None and address.scheme.lower() == "http":
        target, sent = f"http://{_netloc(address)}{target}", sent | _proxy_headers(proxy)
    connection.request("GET", target, headers=sent)
    return connection.getresponse()


def _connect(address: SplitResult, limits: TimeLimits) -> http.client.HTTPConnection:
    scheme, host, port = _origin(address)
    timeout = min(limits.idle, max(0.001, limits.deadline - time.monotonic()))
    proxy = _proxy(address)
    at = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
    if scheme == "https":
        secure = http.client.HTTPSConnection(*at, timeout=timeout, context=_tls())
        connection: http.client.HTTPConnection = secure
        if proxy:
            connection.set_tunnel(host, port, _proxy_headers(proxy))
    else:
        connection = http.client.HTTPConnection(*at, timeout=timeout)
    connection.response_class = FinalResponse
    connection.connect()
    untyped: Any = connection
    untyped.sock = _TimedSocket(untyped.sock, limits)
    return connection


class _TimedSocket:
    """A socket that never waits longer than its limits, which change from one request to the next."""

    def __init__(self, connected: socket.socket, limits: TimeLimits) -> None:
        self._socket, self.limits = connected, limits

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client reads answers from."""
        return io.BufferedReader(_TimedReader(self, self._socket.makefile("rb", buffering=0)), PIECE)

    def sendall(self, data: bytes) -> None:
        """Send a request."""
        self.prepare()
        self._socket.sendall(data)

    def prepare(self) -> None:
        """Set how long the next operation may take."""
        left = self.limits.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(min(self.limits.idle, left))

    @property
    def silent(self) -> bool:
        """Whether nothing has arrived: bytes that come unasked must not become the next answer."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0) and not getattr(self._socket, "pending", int)()

    def close(self) -> None:
        """Close the socket, once the answers read from it are closed too."""
        self._socket.close()


class _TimedReader(io.RawIOBase):
    """The bytes that arrive at a timed socket."""

    def __init__(self, timed: _TimedSocket, raw: Any) -> None:
        self._timed, self._raw = timed, raw
        self.ended = False

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Wait for bytes, not longer than the limits allow."""
        self._timed.prepare()
        count: int | None = self._raw.readinto(buffer)
        self.ended = self.ended or count == 0
        return count

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


class _KeptConnections:
    """Connections that wait for their next request, by server."""

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[str, str, int], list[http.client.HTTPConnection]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, server: tuple[str, str, int]) -> http.client.HTTPConnection | None:
        """A connection that nobody uses and on which nothing waits to be read, if there is one."""
        with self._lock:
            waiting = self._waiting[server]
            while waiting:
                connection = waiting.pop()
                timed: Any = connection.sock
                if timed.silent:
                    return connection
                connection.close()
        return None

    def give_back(self, server: tuple[str, str, int], connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request, unless enough are kept."""
        with self._lock:
            if len(self._waiting[server]) < KEPT:
                self._waiting[server].append(connection)
                return
        connection.close()

    def close_all(self) -> None:
        """Close every connection that nobody uses."""
        with self._lock:
            for connection in [each for several in self._waiting.values() for each in several]:
                connection.close()
            self._waiting.clear()


_kept = _KeptConnections()
atexit.register(_kept.close_all)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _proxy(address: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for an address."""
    found = urllib.request.getproxies().get(address.scheme.lower())
    if not found or urllib.request.proxy_bypass(address.hostname or ""):
        return None
    return urlsplit(found if "://" in found else f"http://{found}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    return {"Proxy-Authorization": basic(proxy)} if proxy.username else {}


def basic(address: SplitResult) -> str:
    """The Authorization header for the user and password in an address."""
    pair = f"{unquote(address.username or '')}:{unquote(address.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _netloc(address: SplitResult) -> str:
    return address.netloc.rpartition("@")[2]
