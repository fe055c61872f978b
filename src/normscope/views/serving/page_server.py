"""A small web server for this machine alone: a random token in every address, nothing but reading.

It listens on the loopback interface. Another page in the same browser cannot reach it: it does not know
the token, and requests under any host name but this machine's are refused (a name that a stranger's
server resolves to 127.0.0.1 would otherwise make them look like its own).
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from normscope.errors import NormscopeError, UsageError

LOOPBACK = "127.0.0.1"
OWN_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
TOKEN_BYTES = 18
SMALLEST_ZIPPED = 2000  # bytes
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class PageAnswer:
    """What a request gets."""

    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    kept: bool = False  # the browser may keep it as long as the server runs


PageAnswers = Callable[[str, dict[str, str]], PageAnswer | None]
"""From a path below the token and its query to an answer; None if there is nothing there."""


class PageServer(ThreadingHTTPServer):
    """Serves `answers` at `address` until it is closed."""

    daemon_threads = True

    def __init__(self, answers: PageAnswers, port: int = 0) -> None:
        self.answers, self.token = answers, secrets.token_urlsafe(TOKEN_BYTES)
        try:
            super().__init__((LOOPBACK, port), _Request)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot listen on port {port} of this machine: {error}; choose another with --port"
            ) from error

    @property
    def address(self) -> str:
        """The address to open in a browser; it contains the token."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"


class _Request(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "normscope", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request."""
        self._send(self._answer())

    def do_HEAD(self) -> None:
        """Answer with the headers alone."""
        self._send(self._answer())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal belongs to the user."""

    def _answer(self) -> PageAnswer:
        """The answer of the pages, or why there is none, in words for a browser."""
        host = self.headers.get("Host", "").rpartition(":")
        if (host[0] or host[2]) not in OWN_NAMES:
            return _refused(HTTPStatus.FORBIDDEN, "This server answers only to localhost and 127.0.0.1.")
        parts = urlsplit(self.path)
        _, _, rest = parts.path.partition("/")
        token, _, inside = rest.partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return _refused(HTTPStatus.NOT_FOUND, "Open the address that normscope serve has printed.")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        try:
            found = self.server.answers(unquote(inside), query)
        except NormscopeError as error:
            return _refused(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        return found or _refused(HTTPStatus.NOT_FOUND, "There is no such run here, or no longer.")

    def _send(self, answer: PageAnswer) -> None:
        body = answer.body
        zipped = len(body) >= SMALLEST_ZIPPED and "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(body, 1, mtime=0) if zipped else body
        self.send_response(answer.status)
        kept = {"Cache-Control": "private, max-age=31536000, immutable"} if answer.kept else {}
        for name, value in (HEADERS | kept).items():
            self.send_header(name, value)
        if zipped:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _refused(status: HTTPStatus, sentence: str) -> PageAnswer:
    return PageAnswer(f"{sentence}\n".encode(), "text/plain; charset=utf-8", status)
