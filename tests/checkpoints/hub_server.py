"""A small server that speaks the hub's API, and fails on demand.

What it answers is what huggingface_hub 2.4 asks for, and what normscope asks with its session: refs,
revision, tree and commits (in pages, with Link headers), HEAD and GET of resolve/. Large files are redirected
to another host with X-Linked-Size and X-Linked-Etag, with or without X-Xet-Hash and the address of a token
for xet; small ones to /api/resolve-cache/ of the same host, by a relative address.
"""

import hashlib
import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignore clients that close the connection: that is part of the test."""


class Hub:
    """Repositories as {revision: {path: bytes}}; each response of the storage uses up one of `faults`."""

    def __init__(self, repositories):
        self.repositories = repositories
        self.faults = []
        self.api_faults = []
        self.sent = []
        self.requests = []
        self.expired = set()
        self.locations = 0
        self.snapshots = {}
        self.gated = False
        self.small = set()  # files that the hub serves itself, from its cache
        self.ignores_ranges = False
        self.xet = False
        self.page = 3  # items per page of a listing
        self.next_host = None  # where the next page is said to be
        self.history = {}  # branch → [(title, files)], the latest first
        self.lock = threading.Lock()

    def __enter__(self):
        self.server = Server(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        # Another origin, as the real storage is: the client follows redirects only within its own.
        self.storage_url = f"http://localhost:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def fetched_twice(self):
        """Whether any byte of any file was sent more than once."""
        spans = sorted(self.sent)
        return any(a[0] == b[0] and b[1] < a[2] for a, b in itertools.pairwise(spans))

    def commit(self, repository, revision):
        """The commit that a revision points to now; its files stay as they are."""
        if revision in self.snapshots:
            return revision
        files = self.repositories[repository].get(revision)
        if files is None:
            return None
        content = repr([(path, hashlib.sha256(data).hexdigest()) for path, data in files.items()])
        commit = hashlib.sha1(f"{revision}{content}".encode()).hexdigest()
        self.snapshots[commit] = dict(files)
        return commit

    def files(self, repository, revision):
        return self.snapshots.get(revision) or self.repositories[repository].get(revision)

    def take(self, faults):
        with self.lock:
            return faults.pop(0) if faults else None

    def _handler(hub):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", headers.get("length", str(len(body))))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                parts = unquote(urlparse(self.path).path).strip("/").split("/")
                with hub.lock:
                    hub.requests.append((self.command, self.path))
                if parts[0] == "storage":
                    self.storage(parts)
                elif parts[:2] != ["api", "models"] and parts[0] == "api" and parts[1] != "resolve-cache":
                    self.answer(404, b"{}")  # /api/agent-harnesses: the client asks for it once
                elif hub.gated and self.headers.get("Authorization") != "Bearer hf_secret_token":
                    self.answer(
                        401, b"{}", X_Error_Code="GatedRepo",
                        X_Error_Message=f"Access to model is restricted. {hub.gated}",
                    )  # fmt: skip
                elif (fault := hub.take(hub.api_faults)) is not None:
                    limited = {"Retry_After": "0"} if fault == 429 else {}
                    if isinstance(fault, tuple):
                        fault, limited = fault[0], {"RateLimit": fault[1]}
                    self.answer(fault, b"busy", **limited)
                elif parts[:2] == ["api", "resolve-cache"]:
                    self.cached(parts)
                elif parts[0] == "api":
                    self.api(parts)
                else:
                    self.resolve(parts)

            def api(self, parts):
                repository = "/".join(parts[2:4])
                revisions = hub.repositories.get(repository)
                if revisions is None:
                    return self.answer(404, b"{}", X_Error_Code="RepoNotFound")
                if parts[4] == "refs":
                    branches = [
                        {"name": r, "ref": f"refs/heads/{r}", "targetCommit": hub.commit(repository, r)}
                        for r in revisions
                    ]
                    return self.paged(branches, lambda some: {"branches": some, "tags": [], "converts": []})
                if parts[4] == "commits":
                    return self.paged([hub.described(title, files) for title, files in hub.history[parts[5]]])
                commit = hub.commit(repository, parts[5])
                if commit is None:
                    return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
                if parts[4] == "revision":
                    return self.answer(200, json.dumps({"id": repository, "sha": commit}).encode())
                return self.tree(hub.files(repository, parts[5]))

            def tree(self, found):
                folders = dict.fromkeys(path.rpartition("/")[0] for path in found if "/" in path)
                items = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in folders]
                return self.paged(items + [hub.describe(path, data) for path, data in found.items()])

            def paged(self, items, body=list):
                """A page of a listing, and where the next one is."""
                at = int(parse_qs(urlparse(self.path).query).get("cursor", ["0"])[0])
                headers = {}
                if at + hub.page < len(items):
                    base = (hub.next_host or hub.url) + self.path.split("?")[0]
                    headers["Link"] = f'<{base}?recursive=true&cursor={at + hub.page}>; rel="next"'
                return self.answer(200, json.dumps(body(items[at : at + hub.page])).encode(), **headers)

            def resolve(self, parts):
                repository, revision, path = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
                data = hub.files(repository, revision)[path]
                if path in hub.small:
                    cached = f"/api/resolve-cache/models/{repository}/{revision}/{path}"
                    return self.answer(307, Location=cached, X_Repo_Commit=hub.commit(repository, revision))
                with hub.lock:
                    hub.locations += 1
                    key = f"storage/{hub.locations}/{repository}/{revision}/{path}"
                digest = hashlib.sha256(data).hexdigest()
                token = f"{hub.url}/api/models/{repository}/xet-read-token/{revision}"
                xet = {"X_Xet_Hash": digest, "Link": f'<{token}>; rel="xet-auth"'} if hub.xet else {}
                return self.answer(
                    302, **xet, Location=f"{hub.storage_url}/{key}", X_Linked_Size=str(len(data)),
                    X_Linked_ETag=f'"{digest}"', X_Repo_Commit=hub.commit(repository, revision),
                )  # fmt: skip

            def cached(self, parts):
                data = hub.files("/".join(parts[3:5]), parts[5])["/".join(parts[6:])]
                tag = f'"{hashlib.sha256(data).hexdigest()}"'
                if self.command == "HEAD":
                    return self.answer(200, data, ETag=tag, X_Repo_Commit=parts[5])
                start, stop = self.headers["Range"].removeprefix("bytes=").split("-")
                body = data[int(start) : int(stop) + 1]
                return self.answer(206, body, ETag=tag, Content_Range=f"bytes {start}-{stop}/{len(data)}")

            def storage(self, parts):
                assert self.headers.get("Authorization") is None, "the token must stay with the hub"
                if int(parts[1]) in hub.expired:
                    return self.answer(403, b"expired")
                data = hub.files("/".join(parts[2:4]), parts[4])["/".join(parts[5:])]
                start, stop = self.headers["Range"].removeprefix("bytes=").split("-")
                start, stop = int(start), int(stop) + 1
                if hub.ignores_ranges:
                    return self.answer(200, data)
                body = data[start:stop]
                headers = {"Content_Range": f"bytes {start}-{stop - 1}/{len(data)}"}
                fault = hub.take(hub.faults)
                if fault is None or fault == "short":
                    body = body[: len(body) // 2] if fault else body
                    with hub.lock:
                        hub.sent.append(("/".join(parts[2:]), start, start + len(body)))
                    return self.answer(206, body, **headers)
                return self.fail(fault, body, headers, (parts, start))

            def fail(self, fault, body, headers, place):
                if fault == "cut":
                    half = body[: len(body) // 2]
                    with hub.lock:
                        hub.sent.append(("/".join(place[0][2:]), place[1], place[1] + len(half)))
                    self.answer(206, half, length=str(len(body)), **headers)
                    self.close_connection = True
                elif fault == "long":
                    self.answer(206, body + b"more", **headers)
                elif fault == "wrong range":
                    self.answer(206, body, Content_Range="bytes 0-3/4")
                elif isinstance(fault, tuple):
                    self.answer(fault[0], b"later", Retry_After=fault[1])
                else:
                    self.answer(fault, b"no")

        return Handler

    def described(self, title, files):
        """A commit with its title; its files stay as they are."""
        commit = hashlib.sha1(f"{title}{sorted(files)}".encode()).hexdigest()
        self.snapshots[commit] = dict(files)
        return {
            "id": commit,
            "title": title,
            "message": "",
            "authors": [],
            "date": "2026-11-02T10:00:00.000Z",
        }

    @staticmethod
    def describe(path, data):
        digest = hashlib.sha256(data).hexdigest()
        lfs = {"oid": digest, "size": len(data), "pointerSize": 130}
        return {"type": "file", "oid": digest[:40], "size": len(data), "path": path, "lfs": lfs}
