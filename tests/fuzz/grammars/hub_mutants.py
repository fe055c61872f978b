"""Repositories of a hub whose answers are almost right: listings, hashes, sizes, redirects to storage.

The same scripts as for web servers say how the server errs; what the hub lists may be changed as well. A file
is that of a commit, so all numbers must be those that the repository has.
"""

import functools
import hashlib
import importlib
import json
import os
import random
import ssl
import time
from urllib.parse import parse_qs

import numpy as np
from safetensors.numpy import save

from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import range_file, retry
from normscope.checkpoints.ranges.patience import Patience, patient
from normscope.checkpoints.storage import hub_files
from normscope.errors import CheckpointError

from ..behaviours import ALL, ALONE, HARMLESS, OTHERS, PASSING, SLOW
from ..checkpoints_read import read_tensor
from ..mutant import Answer, Grammar, Mutant
from ..mutations import as_pairs, damaged, dumps, integer, mutated_json
from ..served import Reply, serving
from .remote_mutants import ATTEMPTS, MOST_WALL, _arrays, _holds, _rule

_NOT_HERE = {"moved", "old protocol", "until closed", "bytes after"}
"""Behaviours that the hub's client may refuse."""
_SAFE = {name: entry for name, entry in HARMLESS.items() if name not in _NOT_HERE}
_LATER = {"busy", "reset", "closed early", "nothing", "stalls"}
_LIES = (
    "page",
    "page",
    "text",
    "next",
    "size",
    "hash",
    "linked size",
    "linked etag",
    "location",
    "commit",
    "status",
)
_NEXT = (
    "same",
    "empty",
    "other host",
    "http://[",
    "http://h:x/",
    "/api/models/o/n",
    "//",
    "\x01",
    "",
    "file:///etc/passwd",
)
_LOCATIONS = ("file:///etc/passwd", "http://[", "http://127.0.0.1:1/x", "", "//", "http://h:x/", "/o/n/loop", "s3://b/c",
              "https://127.0.0.1:1/", "/" + "a" * 30_000, "/\x01", "javascript:x", "?",
              "http:///x")  # fmt: skip
_TAGS = ('""', "x", '"' + "0" * 40 + '"', '"' + "a" * 64 + '"', "W/", "\x01", '"' + "x" * 9000 + '"')


def _make(rng):
    sound = rng.random() < 0.25
    how = rng.choice(("main", "tags", "commits"))
    steps = (1,) if how == "main" else (1, 2, 30)
    files = {}
    for step in steps:
        weights = np.random.default_rng(rng.randrange(1 << 30))
        shapes = (("a.w", (64, 40)), ("b.w", (100, 90)), ("c.b", (300, 64)))
        files[f"{step}/model.safetensors"] = save(
            {name: weights.standard_normal(shape, np.float32) for name, shape in shapes}
        )
    passing = {name: entry for name, entry in PASSING.items() if name in _LATER}
    rules = [_rule(rng, _SAFE) for _ in range(rng.randrange(2))]
    script = {"how": how, "sound": sound, "page": rng.choice((1, 2, 50)), "guess": rng.choice((4096,
    65536)), "passes": [],
              "small": rng.random() < 0.3, "lies": []}  # fmt: skip
    if sound:
        chosen = rng.sample(list(passing), rng.randrange(ATTEMPTS - 2))
        script["passes"] = [[rng.randrange(10), name, *passing[name][0](rng)] for name in chosen]
    else:
        lies = rng.choice(_LIES), rng.choice(_LIES)
        for lie in lies[: rng.randrange(3)]:
            drawn = {"next": _NEXT, "location": _LOCATIONS, "hash": _TAGS, "linked etag": _TAGS}.get(lie)
            value = (
                rng.choice(drawn)
                if drawn
                else str(integer(rng, 87_000, -5))
                if "size" in lie
                else rng.randrange(1 << 30)
            )
            script["lies"].append([lie, value, rng.randrange(8) if rng.random() < 0.5 else None])
        rules += [
            _rule(rng, ALL if rng.random() < 0.3 else OTHERS | PASSING) for _ in range(rng.randrange(3))
        ]
        rules = [rule for rule in rules if rule["do"][0] not in SLOW or rng.random() < 0.3]
    script["rules"] = rules
    stalling = any(each[1] == "stalls" for each in script["passes"])
    script["limits"] = [0.4, 8.0] if stalling else [8.0, 16.0] if sound else [0.1, 0.25]
    return Mutant({"script.json": json.dumps(script).encode(), **files}, sound=sound)


class Play:
    """The script while it is played."""

    def __init__(self, script, files):
        self.script, self.spent = script, set()
        self.files = {path.split("/")[0]: data for path, data in files.items()}
        self.commits = {hashlib.sha1(step.encode()).hexdigest(): step for step in self.files}
        self.lies = False
        self.port = 0

    def answer(self, asked):
        reply = self._right(asked)
        reply.redirect = None
        chosen = [rule["do"] for rule in self.script["rules"] if _holds(rule["when"], asked.number)]
        for number, (first, *do) in enumerate(self.script["passes"]):
            if asked.number >= first and number not in self.spent and "agent" not in asked.path:
                self.spent.add(number)
                chosen.append(do)
                break
        for do in [do for do in chosen if do[0] in ALONE][:1] or chosen:
            ALL[do[0]][1](reply, *do[1:])
            self.lies |= do[0] in (
                "content length",
                "two content lengths",
                "length shifted",
                "answer after",
                "page bytes",
            )
        if reply.cut is not None and reply.framing == "close":
            self.lies = True
        if reply.redirect is not None:
            reply.status, reply.body, reply.opening = 302, b"moved", None
            reply.put("Location", reply.redirect)
        return reply

    def _lie(self, asked, name):
        """What the script says in place of the truth, at this request."""
        for lie, value, when in self.script["lies"]:
            if lie == name and when in (None, asked.number):
                return value
        return None

    def _right(self, asked):
        parts = asked.path.strip("/").split("/")
        if parts[:4] == ["api", "models", "o", "n"]:
            return self._api(parts, asked)
        if len(parts) > 4 and parts[2] == "resolve":
            return self._resolve(parts, asked)
        if parts[0] == "storage" and len(parts) > 1 and parts[1] in self.commits:
            return self._storage(self.files[self.commits[parts[1]]], asked)
        return Reply(404, [], b"{}")

    def _api(self, parts, asked):
        newest = list(self.commits)[-1]
        if parts[4:5] == ["refs"]:
            tags = [
                {"name": f"step{step}", "ref": "x", "targetCommit": commit}
                for commit, step in self.commits.items()
            ]
            return self._json(asked, {"branches": [{"name": "main", "targetCommit": newest}], "tags": tags})
        if parts[4:5] == ["revision"]:
            return self._json(asked, {"id": "o/n", "sha": self._lie(asked, "commit") or newest})
        if parts[4:5] == ["commits"]:
            return self._json(
                asked, [{"id": c, "title": f"Training, step {step}"} for c, step in self.commits.items()]
            )
        if parts[4:5] == ["tree"] and parts[5] in self.commits:
            data = self.files[self.commits[parts[5]]]
            lied = self._lie(asked, "size")
            size = len(data) if lied is None else int(lied)
            digest = self._lie(asked, "hash") or hashlib.sha256(data).hexdigest()
            model = {"type": "file", "oid": digest[:40], "size": size, "path": "model.safetensors",
                     "lfs": {"oid": digest, "size": size, "pointerSize": 130}}  # fmt: skip
            other = {"type": "file", "oid": "0" * 40, "size": 2, "path": "config.json"}
            return self._json(
                asked, [{"type": "directory", "oid": "1" * 40, "path": "x", "size": 0}, other, model]
            )
        return Reply(404, [("X-Error-Code", "RevisionNotFound")], b"{}")

    def _json(self, asked, value):
        reply = Reply(200, [("Content-Type", "application/json")])
        if isinstance(value, list):
            at = int((parse_qs(asked.query).get("cursor") or ["0"])[0] or 0)
            size = self.script["page"]
            value, rest = value[at : at + size], value[at + size :]
            following = f"http://127.0.0.1:{self.port}{asked.path}?cursor={at + size}" if rest else ""
            lied = self._lie(asked, "next")
            if lied is not None:
                self.lies = True
                own = f"http://127.0.0.1:{self.port}{asked.path}?{asked.query}"
                following = {
                    "same": own,
                    "empty": f"{asked.path}?cursor={100 + at}",
                    "other host": "http://localhost:1/",
                }.get(lied, lied)
            if following:
                reply.put("Link", f'<{following}>; rel="next"')
        drawn = random.Random(self._lie(asked, "page") or 0)
        if self._lie(asked, "page") is not None:
            self.lies, value = True, as_pairs(value)
            for _ in range(drawn.randrange(1, 4)):
                value = mutated_json(drawn, value)
        text = dumps(as_pairs(value)).encode("utf-8", "surrogatepass")
        if self._lie(asked, "text") is not None:
            self.lies, text = True, damaged(random.Random(self._lie(asked, "text")), text, 2)
        reply.body = text
        return reply

    def _resolve(self, parts, asked):
        data = self.files.get(self.commits.get(parts[3], ""))
        if data is None or parts[4] != "model.safetensors":
            return Reply(404, [("X-Error-Code", "EntryNotFound")], b"")
        digest = hashlib.sha256(data).hexdigest()
        if self.script["small"] and asked.method == "GET":
            return self._storage(data, asked)
        tag, size = (
            self._lie(asked, "linked etag") or f'"{digest}"',
            self._lie(asked, "linked size") or str(len(data)),
        )
        labels = [("X-Repo-Commit", parts[3])]
        if self.script["small"]:
            return Reply(200, [*labels, ("ETag", tag), ("Content-Length", size)], b"")
        place = (
            self._lie(asked, "location") or f"http://localhost:{self.port}/storage/{parts[3]}/{asked.number}"
        )
        return Reply(
            302, [*labels, ("X-Linked-Size", size), ("X-Linked-ETag", tag), ("Location", place)], b""
        )

    def _storage(self, data, asked):
        assert "authorization" not in asked.headers or self.script["small"], "the token left the hub"
        span = asked.span(len(data))
        if span is None or span[0] >= len(data):
            return Reply(416, [("Content-Range", f"bytes */{len(data)}")], b"")
        start, stop = span
        return Reply(
            206,
            [("ETag", '"s"'), ("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")],
            data[start:stop],
        )


def _read(folder):
    import huggingface_hub

    script = json.loads((folder / "script.json").read_text())
    files = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in sorted(folder.glob("*/*"))}
    play = Play(script, files)
    os.environ |= {
        "no_proxy": "127.0.0.1,localhost",
        "HF_TOKEN": "hf_secret",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if not hasattr(ssl.create_default_context, "cache_info"):  # each takes 40 ms, and none is used
        ssl.create_default_context = functools.cache(ssl.create_default_context)
    constants = importlib.import_module("huggingface_hub.constants")
    hub_files.RETRY = retry.Retry(ATTEMPTS, 0.001, 0.002, *script["limits"], 1_000_000_000)
    retry._ASKED = 0.05
    range_file.header_guess.nbytes = script["guess"]
    asked = {"main": None, "tags": "step*", "commits": "commits:main"}[script["how"]]
    started, answer = time.monotonic(), Answer(other=play)
    try:
        with serving(play.answer) as server, patient(Patience(0.2)):
            play.port = int(server.rpartition(":")[2])
            constants.ENDPOINT = server
            constants.HUGGINGFACE_CO_URL_TEMPLATE = server + "/{repo_id}/resolve/{revision}/{filename}"
            for entry in open_series("hf://o/n", revisions=asked, default_step=1).entries:
                checkpoint = entry.open()
                try:
                    for name, tensor in checkpoint.tensors.items():
                        read_tensor(answer, checkpoint, name, tensor, f"{entry.step} {name}")
                    assert checkpoint.digest
                finally:
                    checkpoint.close()
    except CheckpointError as error:
        if "o/n" not in str(error):
            raise AssertionError(f"the error names no file: {error}") from error
        raise
    finally:
        huggingface_hub.close_session()
        if time.monotonic() - started > MOST_WALL:
            raise AssertionError(f"it took {time.monotonic() - started:.1f} s")
    return answer


def _judge(mutant, folder, answer):
    if answer is None:
        return None
    play, got = answer.other, {}
    for name, values in answer.tensors.items():
        step, tensor = name.split(" ", 1)
        got.setdefault(step, {})[tensor] = values.data
    if got.keys() != play.files.keys() and not play.lies and not play.script["lies"]:
        return f"steps {sorted(got)} are read, expected {sorted(play.files)}"
    known = [_arrays(data) for data in play.files.values()]
    for step, values in got.items():
        right = [_arrays(play.files[step])] if step in play.files and not play.lies else known
        if values not in right and "answer after" not in str(play.script["rules"]):
            return f"step {step} has numbers of no file of that commit"
    return None


HUB = Grammar("hub", _make, _read, _judge, scanned=False)
