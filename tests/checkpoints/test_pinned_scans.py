"""Scans of files that are replaced under way: no row mixes two versions, and nothing else is lost."""

import contextlib
import itertools
import os
import re
import sqlite3
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from ipaddress import ip_address

import pytest
import torch
from safetensors.torch import save

from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import web_connections
from normscope.checkpoints.ranges.range_answers import server_wait
from normscope.checkpoints.ranges.retry import Retry, Transient, fetch_all
from normscope.checkpoints.storage import web
from normscope.errors import CheckpointError, ReplacedCheckpoint
from normscope.weights.scan.scan import scan

from .crafted_server import CraftedServer
from .test_crafted_servers import honest, no_identity

COLUMNS = "step, prev_step, tensor, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite"


def tensors(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"embed": (300, 64), "w": (64, 640), "b": (64,), "head": (2000, 64)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def rows(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT {COLUMNS} FROM weight ORDER BY 1, 2, 3").fetchall()


def local_rows(tmp_path, contents):
    folder = tmp_path / "local"
    folder.mkdir(exist_ok=True)
    for step, data in contents.items():
        (folder / f"step_{step}.safetensors").write_bytes(data)
    scan(folder, tmp_path / "local.db").close()
    return rows(tmp_path / "local.db")


def normscope(*arguments, **options):
    command = [sys.executable, "-m", "normscope", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **options)


def long_tensors(seed):
    """More than are fetched at once: `a` comes with the first request, `c` with the last."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (300, 64), "b": (2500, 2000), "c": (64, 640)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


class Files:
    """A server of several files; one in `replacements` is replaced after some of its tensors were sent."""

    def __init__(self, contents):
        self.contents = {f"/step_{step}.safetensors": [data] for step, data in contents.items()}
        self.replacements = {}

    def __call__(self, r):
        versions = self.contents[r.path]
        r.data, r.etag = versions[-1], f'"v{len(versions)}"'
        honest(r)
        if r.path in self.replacements and r.asked[1] - r.asked[0] > 1 << 20:
            versions.append(self.replacements.pop(r.path))


def test_a_scan_of_a_replaced_file_ends_and_the_next_one_is_right(tmp_path):
    before = {step: save(long_tensors(step)) for step in (10, 20)}
    after = {10: before[10], 20: save(long_tensors(99))}
    files = Files(before)
    files.replacements["/step_20.safetensors"] = after[20]
    with CraftedServer(b"", files).serving() as server:
        urls = [f"{server.root}/step_{step}.safetensors" for step in (10, 20)]
        first = normscope("scan", *urls, "--run", tmp_path / "run.db", "--workers", 1)
        assert first.returncode == 1
        assert "step_20.safetensors was replaced while it was read" in " ".join(first.stderr.split())
        assert "Traceback" not in first.stderr
        kept = rows(tmp_path / "run.db")
        old, new = local_rows(tmp_path, before), local_rows(tmp_path, after)
        assert kept
        assert set(kept) < set(old), "what was written is of one version"
        second = normscope("scan", *urls, "--run", tmp_path / "run.db")
        assert second.returncode == 0, second.stderr
        assert rows(tmp_path / "run.db") == new


def test_a_file_replaced_between_two_scans_is_measured_again(tmp_path):
    before = {step: save(tensors(step)) for step in (10, 20, 30)}
    after = {**before, 20: save(tensors(99))}
    files = Files(before)
    with CraftedServer(b"", files).serving() as server:
        urls = [f"{server.root}/step_{step}.safetensors" for step in (10, 20, 30)]
        scan(urls, tmp_path / "run.db").close()
        files.contents["/step_20.safetensors"].append(after[20])
        scan(urls, tmp_path / "run.db").close()
    assert rows(tmp_path / "run.db") == local_rows(tmp_path, after)


@pytest.mark.parametrize("replaced", [True, False])
def test_workers_that_open_files_themselves_read_the_same_version(tmp_path, replaced):
    """An executor's workers open the address again; what they find must be what was planned."""
    before, after = save(tensors(10)), save(tensors(99))
    opened = []

    def behaviour(r):
        opened.extend([r.number] if r.asked[0] == 0 else [])
        later = replaced and len(opened) > 1
        r.data, r.etag = (after, '"v2"') if later else (before, '"v1"')
        r.part()

    with CraftedServer(b"", behaviour).serving() as server, ThreadPoolExecutor(1) as executor:
        if not replaced:
            scan(server.url, tmp_path / "run.db", engine=executor).close()
            assert rows(tmp_path / "run.db") == local_rows(tmp_path, {3: before})
            return
        with pytest.raises(ReplacedCheckpoint, match="has other contents than when the scan began"):
            scan(server.url, tmp_path / "run.db", engine=executor)
        assert rows(tmp_path / "run.db") == []


def test_each_byte_of_a_web_file_is_fetched_once_over_few_connections(tmp_path):
    data = save(tensors(1))
    with CraftedServer(data, honest).serving() as server:
        scan(server.url, tmp_path / "run.db").close()
        ranges = sorted(
            tuple(map(int, headers["Range"].removeprefix("bytes=").split("-")))
            for _, headers in server.requests
        )
        assert all(one[1] < other[0] for one, other in itertools.pairwise(ranges))
        assert server.connections <= 2 + (os.cpu_count() or 1)


def test_a_server_that_says_nothing_about_versions_is_named(tmp_path):
    with CraftedServer(save(tensors(1)), no_identity).serving() as server:
        (note,) = open_series(server.url).notes
    assert "neither an ETag nor a Last-Modified" in note


ENDLESS = """
import sys
from pathlib import Path
from normscope.checkpoints import open_series
from normscope.checkpoints.ranges import web_connections
from normscope.checkpoints.storage import web
from normscope.checkpoints.ranges.retry import Retry
from normscope.errors import CheckpointError
web.RETRY = Retry(attempts=3, first=0.01, longest=0.02)
try:
    checkpoint = open_series(sys.argv[1]).entries[0].open()
    checkpoint.read("head", 0, checkpoint.tensors["head"].nbytes)
except CheckpointError as error:
    print(error)
# Not ru_maxrss, which is taken over from the parent.
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("first", [True, False])
def test_an_endless_body_takes_no_memory(first):
    def endless(r):
        if r.number == 0 and not first:
            return r.part()
        r.part(length="")
        r.hang_up()
        while True:
            r.wfile.write(bytes(1 << 22))

    with CraftedServer(save(tensors(3)), endless).serving() as server:
        run = subprocess.run(
            [sys.executable, "-c", ENDLESS, server.url], capture_output=True, text=True, timeout=60
        )
    message, peak = run.stdout.splitlines()
    assert "more bytes than requested" in message
    assert int(peak) < 500, f"{peak} MB"


# -- who sees credentials, and when to wait ---------------------------------------------


def test_a_password_goes_to_its_own_server_only():
    def elsewhere(r):
        r.part()

    data = save(tensors(3))
    with CraftedServer(data, elsewhere).serving() as other:

        def redirecting(r):
            assert r.headers["Authorization"] == "Basic bWU6c2VjcmV0"
            target = f"http://localhost:{other.port}/x" if r.path == "/here" else "/here"
            r.head(307, ("Location", target), ("Content-Length", 0))

        with CraftedServer(data, redirecting).serving() as server:
            address = server.url.replace("http://", "http://me:secret@")
            open_series(address).entries[0].open().close()
            assert [path for path, _ in server.requests] == ["/step_3.safetensors", "/here"]
    assert all("Authorization" not in headers for _, headers in other.requests)


def test_a_refused_connection_is_said_at_once():
    with CraftedServer(b"", honest).serving() as server:
        url = server.url
    started = time.monotonic()
    with pytest.raises(
        CheckpointError, match=r"step_3\.safetensors cannot be read: the connection was refused"
    ):
        open_series(url)
    assert time.monotonic() - started < 2


def test_an_unknown_host_is_said_as_such():
    with pytest.raises(CheckpointError, match="the host name cannot be resolved"):
        open_series("http://no-such-host.invalid/step_3.safetensors")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"ratelimit": '"api";r=0;t=55'}, 55),
        ({"ratelimit": '"pages" ; r = 0 ; t = 12', "ratelimit-policy": '"pages";q=500;w=300'}, 12),
        ({"ratelimit": '"api";r=10;t=55'}, None),
        ({"retry-after": "3", "ratelimit": '"api";r=0;t=55'}, 3),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-4"}, None),
        ({"ratelimit": '"api";r=0;t=' + "9" * 400}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_us_to_wait(headers, seconds):
    assert server_wait(headers) == seconds


def test_a_date_to_wait_for():
    assert 50 < server_wait({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 60
    assert server_wait({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0


def test_a_rate_limit_is_waited_for(monkeypatch):
    monkeypatch.setattr(web, "RETRY", Retry(attempts=3, first=0.01, longest=0.02))
    times = []

    def limited(r):
        times.append(time.monotonic())
        if r.number == 0:
            r.head(429, ("RateLimit", '"pages";r=0;t=1'), ("Content-Length", 0))
        else:
            r.part()

    with CraftedServer(save(tensors(3)), limited).serving() as server:
        open_series(server.url).entries[0].open().close()
    assert times[1] - times[0] >= 1


def limited(seconds, times):
    """A server that limits every request `times` times."""
    asked = {}

    def behaviour(r):
        key = r.headers["Range"]
        asked[key] = asked.get(key, 0) + 1
        if asked[key] <= times:
            r.head(429, ("RateLimit", f'"pages";r=0;t={seconds}'), ("Content-Length", 0))
        else:
            r.part()

    return behaviour


@pytest.mark.slow
def test_a_wait_is_told_with_its_end(tmp_path):
    """Before the series is known, and while it is read; more waits than attempts are no failure."""
    notes = []
    with CraftedServer(save(tensors(3)), limited(1, 1)).serving() as server:
        scan(server.url, tmp_path / "run.db", progress=lambda *what: notes.append(what[2])).close()
    told = [note for note in notes if note.startswith("waiting until ")]
    assert len(told) >= 2
    assert re.fullmatch(
        r"waiting until \d\d:\d\d:\d\d: the server answered 429 for http:.*step_3\.safetensors", told[0]
    )
    assert rows(tmp_path / "run.db") == local_rows(tmp_path, {3: save(tensors(3))})


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "times"), [(3600, 1), (1, 5)])
def test_no_longer_than_the_patience(tmp_path, seconds, times):
    with CraftedServer(save(tensors(3)), limited(seconds, times)).serving() as server:
        began = time.monotonic()
        words = ("scan", server.url, "--run", tmp_path / "run.db", "--patience", 2)
        done = normscope(*words)
        assert time.monotonic() - began < 30
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert f"asks to wait {seconds:,} s" in said
    assert f"the limit is 2 s. Run the same command again later, or with --patience {max(seconds, 3)}" in said


def test_small_progress_is_not_progress_for_ever():
    asked = []

    def one_byte(start, stop):
        asked.append(start)
        yield b"x"
        raise Transient("cut")

    with pytest.raises(CheckpointError, match="after 5 attempts: cut"):
        fetch_all(one_byte, "f", 0, 100_000, Retry(attempts=5, first=0.0))
    assert len(asked) == 5


# -- https ------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path):
    """The files of a certificate for 127.0.0.1, made for this test, and of its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    alternatives = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return tmp_path / "cert.pem", tmp_path / "key.pem"


def test_https(certificate, monkeypatch):
    """A certificate that is trusted is enough, one that is not is refused, and so is a way out of https."""
    monkeypatch.setattr(web, "RETRY", Retry(attempts=2, first=0.01))
    behaviours = [honest]
    with CraftedServer(save(tensors(3)), lambda r: behaviours[-1](r)).serving(certificate) as server:
        with pytest.raises(CheckpointError, match="CERTIFICATE_VERIFY_FAILED"):
            open_series(server.url)
        monkeypatch.setattr(
            web_connections, "_tls", lambda: ssl.create_default_context(cafile=str(certificate[0]))
        )
        checkpoint = open_series(server.url).entries[0].open()
        for name, values in tensors(3).items():
            assert bytes(checkpoint.read(name, 0, values.nbytes)) == values.numpy().tobytes()
        behaviours.append(lambda r: r.head(302, ("Location", "http://127.0.0.1:1/x"), ("Content-Length", 0)))
        with pytest.raises(CheckpointError, match="from https:// to http://"):
            open_series(server.url)


# -- other stores -----------------------------------------------------------------------


@pytest.mark.parametrize("change", ["content", "length", "deleted"])
def test_a_file_of_any_store_is_noticed_when_it_is_replaced(change):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/pinned/step_1.safetensors", save(tensors(1)))
    checkpoint = open_series("memory://pinned").entries[0].open()
    assert bytes(checkpoint.read("b", 0, 256)) == tensors(1)["b"].numpy().tobytes()
    if change == "deleted":
        memory.rm("/pinned/step_1.safetensors")
    else:
        memory.pipe("/pinned/step_1.safetensors", save(tensors(2)) + bytes(change == "length"))
    with pytest.raises(ReplacedCheckpoint, match=r"memory://pinned/step_1\.safetensors was replaced"):
        checkpoint.read("w", 0, tensors(1)["w"].nbytes)
    if change != "deleted":
        memory.rm("/pinned", recursive=True)
