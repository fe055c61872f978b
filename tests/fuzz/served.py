"""A web server in a thread of the child, which behaves as a script says; one for all cases of the child."""

import contextlib
import itertools
import os
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

ENDLESS = bytes(1 << 18)
MOST_SENT = 1 << 28
"""Bytes after which an endless body ends after all: a reader that keeps them would use as much memory."""


@dataclass
class Asked:
    """One request: `number` counts the requests of the case, `start` and `stop` are the range, if any."""

    method: str
    target: str
    headers: dict[str, str]
    number: int = 0

    @property
    def path(self):
        return unquote(urlsplit(self.target).path)

    @property
    def query(self):
        return urlsplit(self.target).query

    def span(self, size):
        """The range that is asked for, cut to the file; None if there is none."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return (int(found[1]), min(int(found[2]) + 1, size)) if found else None


@dataclass
class Reply:
    """An answer that behaviours change before it is sent."""

    status: object = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    opening: str | None = None
    """The line with the status, if it is not the usual one; `{status}` stands for it."""
    before: bytes = b""
    after: bytes = b""
    framing: str = "length"
    """`length`, `close`, or `chunked`; `raw` if the body has its chunks already."""
    chunk: int = 5000
    trailer: bytes = b""
    endless: str = ""
    """`body` or `headers`: that never ends."""
    cut: float | None = None
    """The part of the answer after which the connection is reset (1 is all of it)."""
    resets: bool = True
    piece: int = 0
    """Bytes that are sent at a time; 0 for all at once."""
    stall: tuple[float, float] | None = None
    """At which part of the answer nothing is sent, and for how many seconds."""
    hang_up: bool = False

    def get(self, name):
        """The values of a header, joined as a client joins them."""
        return ", ".join(value for key, value in self.headers if key.lower() == name.lower())

    def drop(self, name):
        self.headers = [(key, value) for key, value in self.headers if key.lower() != name.lower()]

    def put(self, name, value):
        self.drop(name)
        self.headers.append((name, str(value)))

    def as_bytes(self, method):
        if self.framing == "chunked":
            self.drop("Content-Length")
            self.put("Transfer-Encoding", "chunked")
        elif self.framing == "length" and not any(key == "Content-Length" for key, _ in self.headers):
            self.headers.append(("Content-Length", str(len(self.body))))
        opening = (self.opening if self.opening is not None else "HTTP/1.1 {status} Whatever").replace(
            "{status}", str(self.status)
        )
        lines = [opening, *(f"{key}: {value}" for key, value in self.headers)]
        head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n"
        if self.endless != "headers":
            head += b"\r\n"
        if method == "HEAD":
            return self.before + head
        body = (
            chunked(self.body, self.chunk) + self.trailer + b"\r\n"
            if self.framing == "chunked"
            else self.body
        )
        return self.before + head + body + (self.after if self.framing != "close" else b"")


def chunked(data, size):
    """The data in chunks, with the last chunk and without the empty line after it."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n"


class Site:
    """What one case serves: `answer` makes the reply to a request."""

    def __init__(self, answer):
        self.answer = answer
        self.over = False
        self.requests = 0
        self.lock = threading.Lock()

    def reply(self, asked):
        with self.lock:
            asked.number, self.requests = self.requests, self.requests + 1
            return self.answer(asked)


class Served:
    """The server of this process."""

    def __init__(self):
        self.process = os.getpid()
        self.site = None
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self._serve, args=(connection, self.site), daemon=True).start()

    def _serve(self, connection, site):
        connection.settimeout(5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting = b""
        with contextlib.suppress(OSError, ValueError), connection:
            while site is not None and not site.over:
                while b"\r\n\r\n" not in waiting:
                    data = connection.recv(1 << 16)
                    if not data:
                        return
                    waiting += data
                head, _, waiting = waiting.partition(b"\r\n\r\n")
                if not self._answered(connection, site, parsed(head)):
                    return

    def _answered(self, connection, site, asked):
        """Send the reply; whether the connection stays open."""
        reply = site.reply(asked)
        data = memoryview(reply.as_bytes(asked.method))
        end = len(data) if reply.cut is None else int(len(data) * reply.cut)
        stop = [int(len(data) * reply.stall[0])] if reply.stall else []
        marks = sorted(
            {0, end, *(at for at in stop if at < end), *(range(0, end, reply.piece) if reply.piece else ())}
        )
        for start, until in itertools.pairwise(marks):
            if start in stop:
                self._wait(site, reply.stall[1])
            connection.sendall(data[start:until])
        if end in stop or (stop and stop[0] >= end):
            self._wait(site, reply.stall[1])
        if reply.endless:
            piece, sent = (b"X-More: yes\r\n" * 5000 if reply.endless == "headers" else ENDLESS), 0
            while not site.over and sent < MOST_SENT:
                connection.sendall(piece)
                sent += len(piece)
        if reply.cut is not None and reply.resets:
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        open_ended = reply.framing == "close" or reply.endless or reply.cut is not None
        return not (open_ended or reply.hang_up)

    @staticmethod
    def _wait(site, seconds):
        until = time.monotonic() + seconds
        while not site.over and time.monotonic() < until:
            time.sleep(0.005)


def parsed(head):
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = (*first.split(" "), "", "")[:3]
    pairs = (line.partition(":") for line in lines)
    return Asked(method, target, {key.strip().lower(): value.strip() for key, _, value in pairs})


_served = None


@contextlib.contextmanager
def serving(answer):
    """Serve with this function until the end of the block; gives the address of the server."""
    global _served
    if _served is None or _served.process != os.getpid():
        _served = Served()
    _served.site = site = Site(answer)
    try:
        yield f"http://127.0.0.1:{_served.port}"
    finally:
        site.over = True
        _served.site = None
