"""Any folder as a URL on this machine, for libraries that read URLs but not our files.

tensorstore has drivers for S3 and Google Cloud Storage, but none for fsspec or the Hugging Face hub, and
none with our retries. It does read HTTP ranges, so a small server in this process serves the folder.
It listens on the loopback interface only, under a random path.
"""

from __future__ import annotations

import re
import secrets
import socket
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from normscope.checkpoints.base import File, Folder
from normscope.errors import NormscopeError

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")


class ServedFolder:
    """The files below a folder, served over HTTP until `close`."""

    def __init__(self, folder: Folder) -> None:
        self._folders = {"": folder}
        self._files: dict[str, File | None] = {}
        self._lock = threading.Lock()
        self.failure: NormscopeError | None = None
        """Why a file could not be read, which the library that asked for it does not report."""
        self.path = f"/{secrets.token_urlsafe(16)}/"
        self._server = _Server(("127.0.0.1", 0), self)
        threading.Thread(target=self._server.serve_forever, name="normscope-served", daemon=True).start()

    @property
    def address(self) -> str:
        """URL of the server, without the path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def find(self, path: str) -> File | None:
        """The file at a path below the folder, or None."""
        with self._lock:
            if path not in self._files:
                above, _, name = path.rpartition("/")
                folder = self._folder(above)
                known = folder is not None and name in folder.names()
                self._files[path] = folder.file(name) if folder is not None and known else None
            return self._files[path]

    def _folder(self, path: str) -> Folder | None:
        if path not in self._folders:
            above, _, name = path.rpartition("/")
            parent = self._folder(above)
            if parent is None or f"{name}/" not in parent.names():
                return None
            self._folders[path] = parent.folder(f"{name}/")
        return self._folders[path]

    def close(self) -> None:
        """Stop the server, and close the files it opened."""
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()  # waits for the threads that are answering
        for file in filter(None, self._files.values()):
            file.close()


class _Server(ThreadingHTTPServer):
    """Tracks its connections: clients keep them open, and closing the server must not wait for them."""

    daemon_threads = False

    def __init__(self, address: tuple[str, int], served: ServedFolder) -> None:
        super().__init__(address, _Handler)
        self.served = served
        self._connections: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection and remember it."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that closed its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def hang_up(self) -> None:
        """Shut down all open connections."""
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD requests for the files of its server's folder, whole or by range."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Send the bytes that were asked for; after HEAD, only their number."""
        served, path = self.server.served, unquote(self.path)
        try:
            file = served.find(path.removeprefix(served.path)) if path.startswith(served.path) else None
            if file is None:
                self._answer(HTTPStatus.NOT_FOUND, b"")
                return
            start, stop = _range(self.headers.get("Range", ""), file.size)
            body = bytes(file.read(start, stop)) if self.command == "GET" else b""
        except NormscopeError as error:
            served.failure = error
            self._answer(HTTPStatus.BAD_REQUEST, str(error).encode())  # clients do not retry this
            return
        if "Range" in self.headers:
            span = f"bytes {start}-{stop - 1}/{file.size}"
            self._answer(HTTPStatus.PARTIAL_CONTENT, body, stop - start, {"Content-Range": span})
        else:
            self._answer(HTTPStatus.OK, body, stop - start)

    def do_HEAD(self) -> None:
        """Answer like GET, without the bytes."""
        self.do_GET()

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        length: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _range(header: str, size: int) -> tuple[int, int]:
    """The bytes that a Range header asks for; all of them if it has none, or not in bytes."""
    match = _RANGE.fullmatch(header)
    if match is None:
        return 0, size
    start = min(int(match[1]), size)
    return start, max(start, min(int(match[2]) + 1, size) if match[2] else size)
