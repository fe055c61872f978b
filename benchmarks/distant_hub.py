"""A server that speaks the hub's API for the files of a folder, from far away.

    python -m benchmarks.distant_hub FOLDER MILLISECONDS MEGABYTES_A_SECOND

Every subfolder is a revision. Each request waits before it is answered, and all answers together are not
faster than the limit. It prints its address; /stats answers how many requests and bytes there were.
"""

import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

PIECE = 1 << 18


class Line:
    """A line of limited speed that all connections share."""

    def __init__(self, bytes_a_second):
        self.speed, self.free, self.lock = bytes_a_second, 0.0, threading.Lock()

    def wait(self, nbytes):
        with self.lock:
            self.free = max(self.free, time.monotonic()) + nbytes / self.speed
            until = self.free
        time.sleep(max(0.0, until - time.monotonic()))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder, seconds, speed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.seconds, self.line = folder, seconds, Line(speed)
        self.stats = {"requests": 0, "bytes": 0}
        self.lock = threading.Lock()
        self.commits = {path.name: hashlib.sha1(path.name.encode()).hexdigest() for path in folder.iterdir()}
        self.revisions = {commit: name for name, commit in self.commits.items()}
        self.trees = {
            name: [describe(path) for path in sorted((folder / name).iterdir())] for name in self.commits
        }


def describe(path):
    digest = hashlib.sha256(f"{path}{path.stat().st_mtime_ns}".encode()).hexdigest()
    size = path.stat().st_size
    lfs = {"oid": digest, "size": size, "pointerSize": 130}
    return {"type": "file", "oid": digest[:40], "size": size, "path": path.name, "lfs": lfs}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        parts = unquote(urlparse(self.path).path).strip("/").split("/")
        if parts == ["stats"]:
            with self.server.lock:
                body = json.dumps(self.server.stats).encode()
                self.server.stats = {"requests": 0, "bytes": 0}
            return self.answer(200, body)
        with self.server.lock:
            self.server.stats["requests"] += 1
        time.sleep(self.server.seconds)
        if parts[0] == "api":
            return self.api(parts)
        return self.storage(parts) if parts[0] == "storage" else self.resolve(parts)

    def api(self, parts):
        if len(parts) < 5:  # telemetry
            return self.answer(404, b"{}")
        if parts[4] == "refs":
            refs = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                for name, commit in self.server.commits.items()
            ]
            return self.answer(200, json.dumps({"branches": refs, "tags": [], "converts": []}).encode())
        name = self.server.revisions.get(parts[5], parts[5])
        if parts[4] == "revision":
            info = {"id": "/".join(parts[2:4]), "sha": self.server.commits[name], "siblings": []}
            return self.answer(200, json.dumps(info).encode())
        return self.answer(200, json.dumps(self.server.trees[name]).encode())

    def resolve(self, parts):
        name = self.server.revisions[parts[3]]
        (info,) = [each for each in self.server.trees[name] if each["path"] == parts[4]]
        port = self.server.server_address[1]
        return self.answer(
            302, Location=f"http://localhost:{port}/storage/{name}/{parts[4]}",
            X_Linked_Size=str(info["size"]), X_Linked_ETag=f'"{info["oid"]}"', X_Repo_Commit=parts[3],
        )  # fmt: skip

    def storage(self, parts):
        path = self.server.folder / parts[1] / parts[2]
        size = path.stat().st_size
        start, stop = 0, size
        if span := self.headers.get("Range"):
            first, _, last = span.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(size, int(last or size - 1) + 1)
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        with path.open("rb") as file:
            file.seek(start)
            while start < stop:
                piece = file.read(min(PIECE, stop - start))
                self.server.line.wait(len(piece))
                self.wfile.write(piece)
                start += len(piece)
                with self.server.lock:
                    self.server.stats["bytes"] += len(piece)


def main():
    folder, milliseconds, megabytes = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    server = Server(folder, milliseconds / 1e3, megabytes * 1e6)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
