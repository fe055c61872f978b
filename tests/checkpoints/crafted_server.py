"""A web server that serves one file, with every fault that a behaviour describes."""

import re
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OLD, NEW = "Mon, 02 Nov 2026 10:00:00 GMT", "Tue, 03 Nov 2026 10:00:00 GMT"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignore clients that close the connection: that is part of the test."""


class Request(BaseHTTPRequestHandler):
    """One request; `number` counts the requests from 0."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        with self.server.state.lock:
            self.server.state.connections += 1

    def log_message(self, *_):
        pass

    def do_GET(self):
        state = self.server.state
        with state.lock:
            self.number = len(state.requests)
            state.requests.append((self.path, dict(self.headers)))
        self.data, self.etag, self.modified = state.data, '"v1"', ""
        state.behaviour(self)

    @property
    def asked(self):
        """The range that was asked for, cut to the file."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return int(found[1]), min(int(found[2]) + 1, len(self.data))

    def head(self, status, *headers):
        """Send a status line and headers, as they are."""
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers)]
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def part(self, *more, body=None, span=None, length=None, status=206, identity=True):
        """Send the part that was asked for, or something like it."""
        start, stop = self.asked
        body = self.data[start:stop] if body is None else body
        headers = [("Content-Length", len(body) if length is None else length)] if length != "" else []
        span = f"bytes {start}-{stop - 1}/{len(self.data)}" if span is None else span
        headers += [("Content-Range", span)] if span else []
        if identity:
            headers += [("ETag", self.etag)] if self.etag else []
            headers += [("Last-Modified", self.modified)] if self.modified else []
        self.head(status, *headers, *more)
        self.wfile.write(body)

    def hang_up(self):
        self.close_connection = True

    def drip(self, data, seconds=0.05):
        """Send byte after byte, slowly, for at most 20 seconds."""
        until = time.monotonic() + 20
        for byte in data:
            self.wfile.write(bytes([byte]))
            time.sleep(seconds)
            if time.monotonic() > until:
                return


class CraftedServer:
    """The server's state: what it serves, how it behaves, and what it was asked."""

    def __init__(self, data, behaviour):
        self.data, self.behaviour, self.requests = data, behaviour, []
        self.connections = 0
        self.lock = threading.Lock()

    @contextmanager
    def serving(self, certificate=None):
        """Serve until the end of the block; over https with the files of a certificate and its key."""
        with Server(("127.0.0.1", 0), Request) as server:
            server.state = self
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            self.port = server.server_address[1]
            self.root = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
            self.url = f"{self.root}/step_3.safetensors"
            yield self
            server.shutdown()
            thread.join()
