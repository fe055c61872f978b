"""Web servers: sound checkpoints behind a server that keeps to a script, which says how it errs and lies.

The script is a file of the mutant. It has two versions of each file, when the second takes the place of the
first, and rules: which behaviours are used at which requests. What is read must be of one version of each
file, unless the server gave both the same ETag, date and length. A script of harmless behaviours must be
read, also with a few failures that pass.
"""

import json
import math
import os
import time
from contextlib import closing

import numpy as np
from safetensors.numpy import save

import normscope as ns
from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import range_file, retry, web_connections
from normscope.checkpoints.ranges.patience import Patience, patient
from normscope.checkpoints.storage import web
from normscope.errors import CheckpointError

from ..behaviours import ALL, ALONE, HARMLESS, HARMLESS_LATER, LATER, OTHERS, PASSING, SLOW
from ..checkpoints_read import read_tensor
from ..mutant import Answer, Grammar, Mutant
from ..served import Reply, serving

ATTEMPTS = 5
MOST_WALL = 6.0
"""Seconds that a case may take with the limits on time that scripts give."""
DATES = ("Mon, 02 Nov 2026 10:00:00 GMT", "Tue, 03 Nov 2026 10:00:00 GMT")
_FILE_SETS = {
    "file": ("step_1.safetensors",),
    "steps": ("step_1.safetensors", "step_2.safetensors", "step_30.safetensors"),
    "bucket": ("step_1.safetensors", "step_2.safetensors", "step_30.safetensors"),
    "index": ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
}
_PLACES = {
    "file": "/run/step_1.safetensors",
    "steps": "/run/",
    "bucket": "/bucket/run/",
    "index": "/run/step_1/",
}
_INDEX = "model.safetensors.index.json"
_LIES_ABOUT_PAGES = {
    "page bytes",
    "links",
    "next page",
    "content length",
    "two content lengths",
    "length shifted",
}


# -- making ------------------------------------------------------------------------------


def _contents(rng, layout):
    """Both versions of each file, by path below the version."""
    shapes = {name: rng.choice(((3,), (64, 40), (100, 90), (300, 64))) for name in ("a.w", "b.w", "c.b")}
    more = rng.random() < 0.2
    files = {}
    for version in (0, 1):
        weights = np.random.default_rng(rng.randrange(1 << 30))
        for number, name in enumerate(_FILE_SETS[layout]):
            own = shapes if layout != "index" else {f"{number}.{key}": shape for key, shape in shapes.items()}
            if version and more:
                own = own | {"z.more": (50,)}
            arrays = {key: weights.standard_normal(shape, np.float32) for key, shape in own.items()}
            files[f"v{version}/{name}"] = save(arrays)
        if layout == "index":
            listed = {f"{n}.{key}": name for n, name in enumerate(_FILE_SETS[layout]) for key in shapes}
            files[f"v{version}/{_INDEX}"] = json.dumps({"metadata": {}, "weight_map": listed}).encode()
    return files


def _identities(rng):
    """ETag and date of both versions; a dash for none."""
    dates = rng.choice((DATES, DATES, DATES[:1] * 2, ("-", "-"), ("-", DATES[1])))
    kind = rng.choice(
        ("strong", "strong", "weak", "none", "same", "garbage", "sometimes", "unquoted", "long")
    )
    tags = {
        "strong": ('"v1"', '"v2"'), "weak": ('W/"v1"', 'W/"v2"'), "none": ("-", "-"), "same": ('"v"', '"v"'),
        "garbage": ("\x01\x1b[2J", "é\x7f"), "sometimes": rng.choice((('"v1"', "-"), ("-", '"v2"'))),
        "unquoted": ("v1", "v2"), "long": ('"' + "x" * 30_000 + '1"', '"' + "x" * 30_000 + '2"'),
    }[kind]  # fmt: skip
    return [[tag, date] for tag, date in zip(tags, dates, strict=True)]


def _when(rng):
    """At which requests a rule holds."""
    kind = rng.randrange(5)
    if kind == 0:
        return {}
    if kind == 1:
        return {"at": sorted({rng.randrange(12) for _ in range(rng.randrange(1, 4))})}
    if kind == 2:
        return {"from": rng.randrange(1, 8)}
    if kind == 3:
        return {"every": rng.randrange(2, 4), "first": rng.randrange(2)}
    return {"until": rng.randrange(1, 6)}


def _rule(rng, table):
    name = rng.choice(list(table))
    return {
        "when": _when(rng),
        "on": rng.choice(("all", "all", "files", "pages")),
        "do": [name, *table[name][0](rng)],
    }


def _make(rng):
    sound = rng.random() < 0.25
    layout = rng.choice(("file", "file", "steps", "bucket", "index"))
    script = {"layout": layout, "versions": _identities(rng), "honours": rng.random() < 0.7, "sound": sound,
              "guess": rng.choice((4096, 8192, 65536)), "how": "scan" if rng.random() < 0.15 else "read",
              "passes": []}  # fmt: skip
    pinned = script["versions"][0] != ["-", "-"]
    harmless = HARMLESS | HARMLESS_LATER if pinned or not sound else HARMLESS
    rules = [_rule(rng, harmless) for _ in range(rng.randrange(3))]
    if sound:
        script["passes"] = [
            [rng.randrange(10), name, *PASSING_ALL[name][0](rng)]
            for name in rng.sample(list(PASSING_ALL), rng.randrange(ATTEMPTS - 1))
        ]
    else:
        rules += [
            _rule(rng, ALL if rng.random() < 0.3 else OTHERS | PASSING_ALL) for _ in range(rng.randrange(3))
        ]
        slow = [rule for rule in rules if rule["do"][0] in SLOW]
        if slow and rng.random() < 0.7:  # each takes the time that the limits allow
            rules = [rule for rule in rules if rule not in slow]
        script["replaced"] = rng.choice((None, rng.randrange(1, 8), rng.randrange(1, 8), "by turns"))
    script["rules"] = rules
    stalling = any(each[1] == "stalls" for each in script["passes"])
    script["limits"] = [0.4, 8.0] if stalling else [8.0, 16.0] if sound else [0.1, 0.25]
    return Mutant({"script.json": json.dumps(script).encode(), **_contents(rng, layout)}, sound=sound)


PASSING_ALL = PASSING | LATER


# -- serving -----------------------------------------------------------------------------


class Play:
    """A script while it is played: the server calls `answer`; `log` is what it sent of which version."""

    def __init__(self, script, files):
        self.script, self.files = script, files
        self.log, self.page_lies, self.blind, self.spent = [], False, False, set()
        self.grows = any(b"z.more" in data for data in files.values())  # a scan leaves out other models
        self.root = _PLACES[script["layout"]].rpartition("/")[0] + "/"

    def answer(self, asked):
        path, hops = asked.path, 0
        if path.startswith("/moved/"):
            count, _, rest = path.removeprefix("/moved/").partition("/")
            path, hops = f"/{rest}", int(count) if count.isdigit() else 0
        if hops > 1:
            return self._moved(Reply(), asked, f"/moved/{hops - 1}", path)
        page = path.endswith("/")
        version = self._version(asked)
        reply = self._page(path, asked.query) if page else self._part(path, asked, version)
        reply.redirect = None
        later = page or not self._opens(asked)
        for name, *drawn in self._chosen(asked, page, later):
            ALL[name][1](reply, *drawn)
            self.page_lies |= page and name in _LIES_ABOUT_PAGES
            self.blind |= name == "answer after"
        if page and reply.cut is not None and reply.framing == "close":
            self.page_lies = True
        if reply.redirect is not None and not hops and "moved" not in asked.query:
            return self._moved(reply, asked, reply.redirect, path)
        if not page and str(reply.status) in ("200", "206"):
            self.log.append(
                (path, version, reply.get("etag").strip(), reply.get("last-modified").strip(), _total(reply))
            )
        return reply

    def _version(self, asked):
        replaced = self.script.get("replaced")
        if replaced is None:
            return 0
        return asked.number % 2 if replaced == "by turns" else int(asked.number >= replaced)

    @staticmethod
    def _opens(asked):
        return asked.headers.get("range", "bytes=0-").startswith("bytes=0-")

    def _chosen(self, asked, page, later):
        """The behaviours for this request; one that must be alone is."""
        chosen = []
        for rule in self.script["rules"]:
            fits = rule["on"] == "all" or (rule["on"] == "pages") == page
            if (
                fits
                and _holds(rule["when"], asked.number)
                and (later or rule["do"][0] not in HARMLESS_LATER | LATER)
            ):
                chosen.append(rule["do"])
        passing = []
        for number, (first, *do) in enumerate(self.script["passes"]):
            late = do[0] in LATER and (page or not later)
            if asked.number >= first and number not in self.spent and not late and not passing:
                if page and do[0] in ("length shifted", "closed early", "reset"):
                    continue
                self.spent.add(number)
                passing.append(do)
        alone = [do for do in (*passing, *chosen) if do[0] in ALONE]
        return alone[:1] or [*chosen, *passing]

    def _moved(self, reply, asked, place, path):
        query = f"?{asked.query}" if asked.query else ""
        if place == "query":
            place = f"{path}?moved&{asked.query}"
        elif "/moved/" in place:
            for scheme, full in (
                ("user:", "http://me:pw@"),
                ("http:", "http://"),
                ("HTTP:", "HTTP://"),
                ("//:", "//"),
            ):
                if place.startswith(scheme + "/moved"):
                    place = f"{full}127.0.0.1:{self.port}{place.removeprefix(scheme)}"
            place = f"{place}{path}{query}"
        elif place == "/loop":
            place = f"{path}?{asked.number}"
        reply.status = 307 if asked.number % 2 else 302
        reply.body, reply.opening = b"moved", None
        for name in ("Content-Range", "Content-Encoding"):
            reply.drop(name)
        reply.put("Location", place)
        return reply

    def _page(self, path, query):
        names = [name.removeprefix("v0/") for name in self.files if name.startswith("v0/")]
        if path == self.root and self.script["layout"] != "bucket":
            links = "".join(f'<a href="{name}">{name}</a>\n' for name in names)
            return Reply(
                200, [("Content-Type", "text/html")], f"<html><a href='../'>up</a>{links}</html>".encode()
            )
        if path == "/bucket/" and "list-type" in query:
            at = 2 * ("continuation-token" in query)
            more = "<NextContinuationToken>t/=</NextContinuationToken>" if at + 2 < len(names) else ""
            keys = "".join(f"<Contents><Key>run/{name}</Key></Contents>" for name in names[at : at + 2])
            return Reply(
                200,
                [("Content-Type", "application/xml")],
                f"<ListBucketResult>{keys}{more}</ListBucketResult>".encode(),
            )
        return Reply(404, [("Content-Type", "application/xml")], b"<Error/>")

    def _part(self, path, asked, version):
        data = self.files.get(f"v{version}/{path.rpartition('/')[2]}")
        if data is None:
            return Reply(404, [], b"no")
        tag, date = self.script["versions"][version]
        labels = [pair for pair in (("ETag", tag), ("Last-Modified", date)) if pair[1] != "-"]
        if self.script["honours"]:
            match, since = (
                asked.headers.get("if-match", tag),
                asked.headers.get("if-unmodified-since", DATES[0]),
            )
            if match != tag or (
                date == DATES[1] and since == DATES[0] and "if-unmodified-since" in asked.headers
            ):
                return Reply(412, labels, b"")
        span = asked.span(len(data))
        if span is None or span[0] >= len(data):
            return Reply(416, [("Content-Range", f"bytes */{len(data)}")], b"")
        start, stop = span
        return Reply(
            206, [*labels, ("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")], data[start:stop]
        )


def _total(reply):
    if str(reply.status) == "200":
        return reply.get("content-length") or str(len(reply.body))
    return reply.get("content-range").rpartition("/")[2].strip()


def _holds(when, number):
    if "at" in when:
        return number in when["at"]
    if "every" in when:
        return number % when["every"] == when["first"]
    return when.get("from", 0) <= number < when.get("until", math.inf)


# -- reading -----------------------------------------------------------------------------


def _read(folder):
    script = json.loads((folder / "script.json").read_text())
    files = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in sorted(folder.glob("v*/*"))}
    play = Play(script, files)
    idle, answer = script["limits"]
    os.environ["no_proxy"] = "127.0.0.1,localhost"
    web.RETRY = retry.Retry(ATTEMPTS, 0.001, 0.002, idle, answer, 1_000_000_000)
    retry._ASKED = 0.05
    range_file.header_guess.nbytes = script["guess"]
    started = time.monotonic()
    try:
        with serving(play.answer) as server, patient(Patience(0.2)):
            play.port = server.rpartition(":")[2]
            return _read_served(server + _PLACES[script["layout"]], script, folder, play)
    except CheckpointError as error:
        if not any(part in str(error) for part in ("step_", "127.0.0.1", "/run/")):
            raise AssertionError(f"the error names no file: {error}") from error
        raise
    finally:
        web_connections._kept.close_all()
        if time.monotonic() - started > MOST_WALL:
            raise AssertionError(f"it took {time.monotonic() - started:.1f} s")


def _read_served(source, script, folder, play):
    answer = Answer(other=play)
    if script["how"] == "scan":
        with closing(ns.scan(source, folder / "run.db", workers=1, patience=0.2)) as run:
            rows = run.query(
                "SELECT step, name, sumsq, absmax, nonfinite FROM weight JOIN tensor ON id = tensor"
            )
        play.rows = {(row[0], row[1]): tuple(row[2:]) for row in rows}
        return answer
    for entry in open_series(source).entries:
        checkpoint = entry.open()
        try:
            for name, tensor in checkpoint.tensors.items():
                read_tensor(answer, checkpoint, name, tensor, f"{entry.step} {name}")
            assert checkpoint.digest
        finally:
            checkpoint.close()
    return answer


# -- judging -----------------------------------------------------------------------------


def _judge(mutant, folder, answer):
    if answer is None:
        return None
    play = answer.other
    layout = play.script["layout"]
    got = {}
    for name in play.rows if play.script["how"] == "scan" else answer.tensors:
        step, tensor = name if isinstance(name, tuple) else name.split(" ", 1)
        file = f"step_{step}.safetensors" if layout != "index" else _FILE_SETS[layout][int(tensor[0] == "1")]
        found = play.rows[name] if isinstance(name, tuple) else answer.tensors[name].data
        if layout != "index" or tensor != "z.more":  # which is read if a page does not list the index
            got.setdefault(file, {})[tensor] = found
    lost = set(_FILE_SETS[layout]) - got.keys()
    if lost and not play.page_lies and not (play.script["how"] == "scan" and play.grows):
        return f"{sorted(lost)} are not read, and nothing says so"
    return next((wrong for file, values in got.items() if (wrong := _wrong(play, file, values))), None)


def _wrong(play, file, values):
    """A sentence if the values are not those of one version, and the server's answers let that be noticed."""
    versions = []
    for version in (0, 1):
        data = play.files.get(f"v{version}/{file}")
        if data is None:
            return f"{file} is read, and there is none"
        listed = _arrays(data)
        if play.script["layout"] == "index":
            listed.pop("z.more", None)
        versions.append(listed)
    if any(_same(values, right) for right in versions) or play.blind:
        return None
    sent = [row[1:] for row in play.log if row[0].rpartition("/")[2] == file]
    hidden = any(a[0] != b[0] and _looks_like(a, b) for a in sent for b in sent)
    if not hidden:
        return f"{file} is read with values of no version, or of both"
    if play.script["how"] == "read" and not all(
        _from_either(values.get(n), *versions, n) for n in versions[0]
    ):
        return f"{file} is read with values that no version has"
    return None


def _looks_like(first, later):
    """Whether an answer passes for the version of an earlier one, by what is documented to be compared."""
    _, tag, date, total = first
    strong = tag.count('"') == 2 and tag[0] == tag[-1] == '"'
    same = later[1] == (tag or later[1]) and (strong or later[2] == (date or later[2]))
    return same and (later[3] == total or (later[3] == "*" and bool(tag or date)))


def _arrays(data):
    from safetensors import deserialize

    return {name: bytes(info["data"]) for name, info in deserialize(data)}


def _same(values, right):
    if values.keys() != right.keys():
        return False
    return all(_equal(found, right[name]) for name, found in values.items())


def _equal(found, data):
    if not isinstance(found, tuple):
        return found == data
    numbers = np.frombuffer(data, np.float32).astype(float)
    expected = (float(np.dot(numbers, numbers)), float(np.abs(numbers).max()), 0)
    return math.isclose(found[0], expected[0], rel_tol=1e-6) and found[1:] == expected[1:]


def _from_either(found, old, new, name):
    if found is None or len(found) != len(old[name]) or len(found) != len(new.get(name, b"")):
        return True
    ours, one, other = (np.frombuffer(each, np.uint8) for each in (found, old[name], new[name]))
    return bool(((ours == one) | (ours == other)).all())


REMOTE = Grammar("remote", _make, _read, _judge, scanned=False)
